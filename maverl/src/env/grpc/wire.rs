//! Messages and services of `maverl.environment.v1`.
//!
//! The code and the descriptors are generated from `environment.proto` by `just protocol`, and checked in, so that a build
//! needs neither `protoc` nor the crates that generate.

#[allow(missing_docs, unreachable_pub, rustdoc::all, clippy::all, clippy::pedantic)]
mod generated {
    include!("maverl.environment.v1.rs");
}

pub use generated::environment_server::{Environment, EnvironmentServer, SERVICE_NAME as SERVICE};
pub use generated::{
    ActManyRequest, ActManyResponse, ActRequest, ActResponse, CloseRequest, CloseResponse,
    DescribeRequest, DescribeResponse, Failure, ForkRequest, JudgeRequest, JudgeResponse,
    OpenRequest, OpenResponse, PlayRequest, PlayResponse, RenewRequest, RenewResponse, Split, Task,
    TasksRequest, Tool, ToolCall,
};
pub use generated::{
    act_many_response, act_request, environment_client::EnvironmentClient, play_request,
    play_response,
};

/// Descriptors of the messages and services, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!("maverl.environment.v1.binpb");

impl From<tonic::Status> for Failure {
    fn from(status: tonic::Status) -> Self {
        Self { code: status.code() as u32, message: status.message().to_owned() }
    }
}

/// Returns the name of a status in the form of the protocol, such as `NOT_FOUND`.
pub fn code_name(code: tonic::Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_uppercase());
    }
    name
}
