//! Limits of requests and answers.

/// Maximum number of messages of a request.
pub(super) const MOST_MESSAGES: usize = 4096;
/// Maximum number of tools of a request.
pub(super) const MOST_TOOLS: usize = 256;
/// Maximum number of choices of a request.
pub(super) const MOST_CHOICES: usize = 16;
/// Maximum number of tokens that an answer lists, the most probable ones included.
pub(super) const MOST_LISTED: usize = 1 << 20;
/// Maximum number of stop strings of a request.
pub(super) const MOST_STOPS: usize = 16;
/// Maximum size of a stop string in bytes. After each token, as many of the last tokens are decoded.
pub(super) const MOST_STOP_BYTES: usize = 512;
/// Maximum number of stop ids of a request. Each token is compared with all of them.
pub(super) const MOST_STOP_IDS: usize = 1024;
/// Maximum number of the most probable tokens of a step.
pub(super) const MOST_TOP: usize = 20;
/// Largest `max_tokens` of a request.
pub(super) const MOST_TOKENS: usize = u32::MAX as usize;
