//! Bytes from a pipe, read by a thread of its own: a read that waits for whoever writes must not
//! keep the connection from being served.
//!
//! The thread is a few pieces ahead at most. Where nobody takes them any more it ends with its next
//! read, or with the process. The end is a word of its own: a thread that dies is no end.

use std::io::{self, Read};
use std::thread;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::sync::mpsc;

/// Bytes that are read at once.
const PIECE: usize = 64 * 1024;

/// Pieces that are read ahead.
const AHEAD: usize = 4;

/// What the thread says.
enum Word {
    Piece(Bytes),
    Failed(io::Error),
    End,
}

/// What `input` holds, piece by piece.
pub(super) fn pieces(
    input: Box<dyn Read + Send>,
) -> io::Result<impl Stream<Item = io::Result<Bytes>> + Send + 'static> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    thread::Builder::new().name("blob-input".into()).spawn(move || read(input, &sender))?;
    Ok(unfold(Some(receiver), |receiver| async {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(Word::Piece(piece)) => Some((Ok(piece), Some(receiver))),
            Some(Word::End) => None,
            Some(Word::Failed(error)) => Some((Err(error), None)),
            None => Some((Err(io::Error::other("the reading of it broke off")), None)),
        }
    }))
}

fn read(mut input: Box<dyn Read + Send>, sender: &mpsc::Sender<Word>) {
    loop {
        let mut piece = vec![0; PIECE];
        let word = match input.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Word::Failed(error),
            Ok(0) => Word::End,
            Ok(length) => {
                piece.truncate(length);
                Word::Piece(piece.into())
            }
        };
        let is_last = matches!(word, Word::End | Word::Failed(_));
        if sender.blocking_send(word).is_err() || is_last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    async fn all(input: impl Read + Send + 'static) -> Vec<io::Result<Bytes>> {
        pieces(Box::new(input)).unwrap().collect().await
    }

    #[tokio::test]
    async fn every_byte_comes_in_order() {
        let bytes: Vec<u8> = (0..=255).cycle().take(300_001).collect();
        let read = all(io::Cursor::new(bytes.clone())).await;
        let read: Vec<u8> = read.into_iter().flat_map(|piece| piece.unwrap()).collect();
        assert!(read == bytes);
        assert!(all(io::empty()).await.is_empty());
    }

    struct Breaks(&'static str);

    impl Read for Breaks {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            match self.0 {
                "fails" => Err(io::Error::other("no more")),
                how => panic!("it {how}"),
            }
        }
    }

    /// A server must not take for the whole what was read until then.
    #[tokio::test]
    async fn a_read_that_breaks_is_no_end() {
        for (how, said) in [("fails", "no more"), ("panics", "the reading of it broke off")] {
            let read = all(Breaks(how)).await;
            assert_eq!(read.len(), 1);
            assert_eq!(read[0].as_ref().unwrap_err().to_string(), said);
        }
    }
}
