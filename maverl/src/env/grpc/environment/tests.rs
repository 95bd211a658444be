#![allow(clippy::unwrap_used)]

use super::*;
use crate::env::grpc::wire;

fn told(options: &GrpcEnvironment) -> String {
    let found = Environment::validate(options, Path::new("/none"), &TaskList::default());
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

/// Starts a server that writes bytes to every connection, then others again and again, and returns its address.
fn raw(start: Vec<u8>, more: Vec<u8>) -> String {
    use std::io::Write as _;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (start, more) = (start.clone(), more.clone());
            std::thread::spawn(move || {
                let mut sent = stream.write_all(&start);
                while sent.is_ok() {
                    sent = stream.write_all(&more);
                    if more.is_empty() {
                        std::thread::sleep(std::time::Duration::from_secs(60));
                    }
                }
            });
        }
    });
    url
}

#[test]
fn a_server_that_is_none_of_grpc_or_does_not_go_on_is_an_error_in_time() {
    let (elsewhere, asked) = crate::client::testing::serve(|_, _| Vec::new());
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
    };
    let settings = [frame(4, 0, 0, &[]), frame(4, 1, 0, &[])].concat();
    // `:status: 200` by its index, and `content-type: application/grpc` as a literal.
    let kind = [&[0x88, 0x5f, 16][..], b"application/grpc"].concat();
    let answered = |more: &[u8]| [&settings[..], &frame(1, 4, 1, &kind), more].concat();
    let message = |length: u32| [&[0][..], &length.to_be_bytes(), &[b'a'; 1000]].concat();
    let moved = format!("HTTP/1.1 307 X\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\n\r\n");
    let found = format!("{elsewhere}/");
    let literal = [&[0x0f, 0x1f, found.len() as u8][..], found.as_bytes()].concat();
    let redirect =
        [&settings[..], &frame(1, 5, 1, &[&[0x08, 3][..], b"307", &literal].concat())].concat();
    let cases: [(&str, Vec<u8>, Vec<u8>); 10] = [
        ("nothing", vec![], vec![]),
        ("text", b"hello\r\n".to_vec(), b"hello\r\n".to_vec()),
        ("a redirect of HTTP/1.1", moved.into_bytes(), vec![]),
        ("a redirect of HTTP/2", redirect, vec![]),
        ("pings", settings.clone(), frame(6, 0, 0, &[7; 8])),
        ("settings", settings.clone(), frame(4, 0, 0, &[])),
        (
            "a frame of 16 MiB",
            [&settings[..], &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]].concat(),
            vec![b'a'; 4096],
        ),
        (
            "headers without an end",
            [&settings[..], &frame(1, 0, 1, &kind)].concat(),
            frame(9, 0, 1, &[0x40; 64]),
        ),
        (
            "a message of 4 GiB",
            answered(&frame(0, 0, 1, &message(u32::MAX))),
            frame(0, 0, 1, &[b'a'; 4096]),
        ),
        ("an answer without an end", answered(&frame(0, 0, 1, &message(1 << 20))), vec![]),
    ];
    for (name, start, more) in cases {
        // Any variable that is set is a key.
        let key_env = "PATH".to_owned();
        let url = raw(start, more);
        let mut server = GrpcEnvironment { url, key_env, timeout_s: 2.0, ..Default::default() };
        let EnvError(told) = Environment::start(&mut server, Path::new("")).unwrap_err();
        assert!(told.starts_with("`url`: http://127.0.0.1:"), "{name}: {told}");
        assert!(!told.contains("/bin"), "{name}: {told}");
    }
    assert!(asked.lock().unwrap().is_empty());
}
