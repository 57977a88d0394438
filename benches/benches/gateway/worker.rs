//! A worker: one connection, and the two requests that it needs.

use serde_json::{Value, json};
use std::{net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// The most runs of a request.
pub const MOST: usize = 50;

pub struct Worker {
    stream: BufReader<TcpStream>,
    name: String,
    claims: usize,
}

impl Worker {
    pub async fn connect(address: SocketAddr, i: usize) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream), name: format!("worker-{i}"), claims: 0 }
    }

    /// The tokens of runs.
    pub async fn claim(&mut self, wait: Duration) -> Vec<String> {
        self.claims += 1;
        let body = json!({
            "worker": self.name,
            "kinds": ["report"],
            "claim_id": format!("{}-{}", self.name, self.claims),
            "max": MOST,
            "wait_ms": u64::try_from(wait.as_millis()).unwrap(),
        });
        let (status, answer) = self.post("/v1/claims", &body).await;
        assert!(status == 200 || status == 204, "{status}: {answer}");
        let runs = answer["runs"].as_array().into_iter().flatten();
        runs.map(|run| run["token"].as_str().unwrap().to_owned()).collect()
    }

    pub async fn complete(&mut self, token: &str) {
        let (status, answer) = self.post("/v1/claim/complete", &json!({ "token": token })).await;
        assert_eq!(status, 200, "{answer}");
    }

    async fn post(&mut self, path: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes()).await.unwrap();
        let mut line = String::new();
        self.stream.read_line(&mut line).await.unwrap();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut length = 0;
        loop {
            line.clear();
            self.stream.read_line(&mut line).await.unwrap();
            if line == "\r\n" {
                break;
            }
            if let Some(given) = line.strip_prefix("content-length: ") {
                length = given.trim().parse().unwrap();
            }
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer).await.unwrap();
        (status, serde_json::from_slice(&answer).unwrap_or_default())
    }
}
