#![allow(clippy::unwrap_used)]

use super::*;

fn told(options: &GrpcEnvironment) -> String {
    let found = Environment::validate(options, Path::new("/none"), &[]);
    found.map_or_else(|EnvError(told)| told, |_| String::new())
}

#[test]
fn options_that_cannot_be_are_refused() {
    assert_eq!(told(&GrpcEnvironment::default()), "");
    let url = |url: &str| GrpcEnvironment { url: url.to_owned(), ..Default::default() };
    for wrong in ["", "127.0.0.1:8000", "ftp://a", "ws://a", "http://", "http:///x"] {
        assert!(told(&url(wrong)).starts_with("`url` is"), "{wrong}");
    }
    for right in ["https://example.org", "http://127.0.0.1:1"] {
        assert_eq!(told(&url(right)), "", "{right}");
    }
    let key_env = "MAVERL_NO_SUCH_KEY".to_owned();
    assert!(told(&GrpcEnvironment { key_env, ..Default::default() }).contains("is not set"));
    let late = GrpcEnvironment { timeout_s: 0.0, ..Default::default() };
    assert!(told(&late).starts_with("`timeout_s`"));
    let ca_file = "no.pem".into();
    let missing = told(&GrpcEnvironment { ca_file, ..url("https://a") });
    assert!(missing.starts_with("`ca_file`: cannot read /none/no.pem"), "{missing}");
}

#[test]
fn a_server_that_is_not_there_is_named_by_its_address_and_no_secret() {
    let mut environment =
        GrpcEnvironment { url: "http://me:password@127.0.0.1:1".to_owned(), ..Default::default() };
    let EnvError(told) = Environment::start(&mut environment, Path::new("")).unwrap_err();
    assert!(told.starts_with("`url`: http://127.0.0.1:1: UNAVAILABLE: "), "{told}");
    assert!(told.contains("refused") && !told.contains("password"), "{told}");
}

#[test]
fn a_status_has_its_name_in_the_protocol() {
    let names = [tonic::Code::Ok, tonic::Code::NotFound, tonic::Code::FailedPrecondition];
    assert_eq!(names.map(wire::code_name), ["OK", "NOT_FOUND", "FAILED_PRECONDITION"]);
}
