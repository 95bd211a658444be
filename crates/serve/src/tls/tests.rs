//! The certificate beside this file is for `localhost`, signed by itself, and for tests alone.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::*;
use crate::listener::{Limits, Listener};

fn file(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tls").join(name)
}

/// Connects with or without trust in the certificate, and returns the answer.
async fn answer(address: std::net::SocketAddr, trusts: bool) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    if trusts {
        roots.add(CertificateDer::from_pem_file(file("certificate.pem")).unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let name = "localhost".try_into().unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream.write_all(b"GET /x HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_trusts_the_certificate_is_answered_and_plain_text_is_not() {
    let tls = Tls::read(&file("certificate.pem"), &file("key.pem")).unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let router = Router::new().route("/x", get(|| async { "secret" }));
    let limits = Limits { head: Duration::from_millis(500), ..Limits::default() };
    let listener = Listener::new(socket, limits).with_tls(Some(tls));
    tokio::spawn(listener.serve(router, std::future::pending()));
    let text = answer(address, true).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("secret"), "{text}");
    assert!(answer(address, false).await.is_err());
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"GET /x HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut bytes = Vec::new();
    let _ = plain.read_to_end(&mut bytes).await;
    assert!(!bytes.windows(6).any(|part| part == b"secret"));
    assert!(answer(address, true).await.is_ok());
}

#[test]
fn files_that_hold_no_certificate_or_no_key_are_named() {
    let read =
        |certificate: &str, key: &str| Tls::read(&file(certificate), &file(key)).err().unwrap();
    assert!(read("key.pem", "key.pem").contains("has no certificate in PEM"));
    assert!(read("certificate.pem", "certificate.pem").contains("certificate.pem"));
    assert!(read("none.pem", "key.pem").contains("cannot read"));
}
