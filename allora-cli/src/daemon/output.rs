//! The output of commands: each line goes to the log, and its end into the record of a failed run.

use super::{context::CommandContext, mask::Mask};
use crate::kinds::command::TAIL;
use allora_core::runtime::{Runtime, Tokio};
use futures::future::{join_all, select};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::Child,
    sync::oneshot,
};
use tracing::info;

/// Longer lines are logged in pieces of so many bytes.
const LINE: usize = 8 * 1024;

/// So much of the end of the output is mailed, in bytes.
pub(crate) const MAILED: usize = 64 * 1024;

/// The command whose output it is.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) job: Arc<str>,
    /// The run's id in the log.
    pub(crate) run: Arc<str>,
}

/// The end of what a command prints.
#[derive(Debug)]
pub(crate) struct OutputTail {
    text: Arc<Mutex<String>>,
    kept: usize,
    /// Ready when the command, and all that has its output, has closed it.
    closed: Vec<oneshot::Receiver<()>>,
}

/// Follows both outputs of a command to their ends; keeps so many bytes of them, without secrets.
pub(crate) fn follow(
    child: &mut Child,
    source: &Source,
    kept: usize,
    mask: &Mask,
    context: &CommandContext,
) -> OutputTail {
    let mut tail = OutputTail { text: Arc::default(), kept, closed: Vec::new() };
    if let Some(stdout) = child.stdout.take() {
        tail.follow(Lines::of(stdout, mask), "stdout", source, context);
    }
    if let Some(stderr) = child.stderr.take() {
        tail.follow(Lines::of(stderr, mask), "stderr", source, context);
    }
    tail
}

/// As much of the end of an output as the history has.
pub(crate) fn end_of(mut text: String) -> String {
    cut(&mut text, TAIL);
    text
}

impl OutputTail {
    fn follow(
        &mut self,
        mut lines: Lines<impl AsyncRead + Unpin + Send + 'static>,
        name: &'static str,
        source: &Source,
        context: &CommandContext,
    ) {
        let (closed, is_closed) = oneshot::channel();
        self.closed.push(is_closed);
        let (text, source, log) = (self.text.clone(), source.clone(), context.log_output);
        let kept = self.kept;
        context.runtime.spawn(Box::pin(async move {
            while let Some(line) = lines.next().await {
                if log {
                    let Source { job, run } = &source;
                    info!(target: "allora", job = &**job, run = &**run, stream = name, "{line}");
                }
                keep(&text, &line, kept);
            }
            // The receiver may have been dropped.
            let _ = closed.send(());
        }));
    }

    /// Waits so long at most for the output to be closed.
    pub(crate) async fn closed(&mut self, runtime: &Tokio, output_wait: Duration) {
        let limit = runtime.sleep_until(runtime.now() + output_wait);
        select(join_all(std::mem::take(&mut self.closed)), limit).await;
    }

    /// The end of what was printed, without blanks around it.
    pub(crate) fn text(&self) -> String {
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        text.trim().to_owned()
    }
}

fn keep(text: &Mutex<String>, line: &str, kept: usize) {
    let mut text = text.lock().unwrap_or_else(PoisonError::into_inner);
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(line);
    cut(&mut text, kept);
}

/// Keeps the end of a text, of so many bytes at most.
fn cut(text: &mut String, kept: usize) {
    if text.len() > kept {
        let from = (text.len() - kept..).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.drain(..from);
    }
}

/// A stream's lines, whatever bytes they hold, without their ends and without secrets.
struct Lines<R> {
    stream: BufReader<R>,
    mask: Mask,
    /// Bytes that may be the beginning of a secret.
    read: Vec<u8>,
    rest: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn of(stream: R, mask: &Mask) -> Self {
        let stream = BufReader::new(stream);
        Self { stream, mask: mask.clone(), read: Vec::new(), rest: Vec::new() }
    }

    /// The next line, or piece of one that is too long.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(text(&line[..end]));
            }
            if self.rest.len() >= LINE {
                return Some(text(&std::mem::take(&mut self.rest)));
            }
            // An output that cannot be read is at its end.
            let read = self.stream.fill_buf().await.unwrap_or_default();
            let (taken, is_end) = (read.len(), read.is_empty());
            self.read.extend_from_slice(read);
            self.stream.consume(taken);
            self.mask.apply(&mut self.read, &mut self.rest, is_end);
            if is_end && !self.rest.contains(&b'\n') {
                let rest = std::mem::take(&mut self.rest);
                return (!rest.is_empty()).then(|| text(&rest));
            }
        }
    }
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of these bytes.
    fn lines(bytes: &[u8]) -> Vec<String> {
        let mut lines = Lines::of(bytes, &Mask::default());
        let mut read = Vec::new();
        let all = async {
            while let Some(line) = lines.next().await {
                read.push(line);
            }
        };
        futures::FutureExt::now_or_never(all).expect("bytes are there at once");
        read
    }

    #[test]
    fn output_is_read_line_by_line_whatever_it_is() {
        assert_eq!(lines(b""), [""; 0]);
        assert_eq!(lines(b"a\r\n\nb"), ["a", "", "b"]);
        assert_eq!(lines(b"\xff\n"), ["\u{fffd}"]);
        let long = lines(&[b'x'; 3 * LINE]);
        assert!(long.len() >= 2 && long.concat().len() == 3 * LINE);
    }

    #[test]
    fn only_the_end_is_kept() {
        let text = Mutex::default();
        for _ in 0..100 {
            keep(&text, "ein Käse", TAIL);
        }
        keep(&text, "last", TAIL);
        let text = text.into_inner().unwrap();
        assert!(text.len() <= TAIL && text.ends_with("ein Käse\nlast"), "{text}");
    }
}
