//! The members of etcd: emptied of one prefix, and asked for the number of their requests.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says so")]

use allora_etcd::etcd_client::{Client, CompactionOptions, DeleteOptions, Error};
use std::{
    io::{Read, Write},
    net::TcpStream,
};

/// Removes every key below the prefix, and all old revisions: etcd walks over deleted keys until they
/// are compacted.
pub async fn clear(urls: &[String], prefix: &str) {
    let mut kv = Client::connect(urls, None).await.unwrap().kv_client();
    let all = DeleteOptions::new().with_prefix();
    let deleted = kv.delete(format!("{prefix}/"), Some(all)).await.unwrap();
    let physical = CompactionOptions::new().with_physical();
    let revision = deleted.header().unwrap().revision();
    match kv.compact(revision, Some(physical)).await {
        Ok(_) => {}
        // Nothing has changed since the last time.
        Err(Error::GRpcStatus(status)) if status.message().contains("compacted") => {}
        Err(error) => panic!("{error}"),
    }
}

/// The number of requests that the members have received since they were started.
pub fn requests(urls: &[String]) -> f64 {
    let of = |url: &String| {
        let mut stream = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let lines = text.lines().filter(|line| line.starts_with("grpc_server_started_total"));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum::<f64>()
    };
    urls.iter().map(of).sum()
}
