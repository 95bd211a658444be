//! Tests of the interface, without a browser.
