//! Gzip: bodies that come compressed, within bounds, and bodies that leave so, always alike.
//!
//! The same bytes are compressed to the same bytes on every machine: a batch that is delivered again
//! must be what was delivered before, also by a node with another processor. That is why the
//! compressor is one without instructions of its own for each processor, and why the test below
//! knows its output: a version that writes other bytes must not serve beside this one.

use std::io::{self, Read as _, Write as _};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use flate2::{Compression, GzBuilder};

/// What is compressed where it is asked for: a millisecond's work.
const AT_ONCE: usize = 64 << 10;

/// Why compressed bytes are not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GunzipError {
    /// They are not gzip, or broke off, or have something behind them.
    #[error("it is not well-formed gzip")]
    Malformed,

    /// There is more in them than allowed.
    #[error("it may have {limit} bytes once it is decompressed")]
    TooLarge { limit: usize },
}

/// The bytes as one gzip member, without name and time.
pub(crate) fn compress(plain: &[u8]) -> Vec<u8> {
    let room = Vec::with_capacity(plain.len() / 3 + 64);
    let mut encoder = GzBuilder::new().write(room, Compression::fast());
    let written = encoder.write_all(plain).and_then(|()| encoder.finish());
    // A vector takes whatever is written to it.
    written.unwrap_or_default()
}

/// The same, beside other work where there is much of it.
pub(crate) async fn compress_aside(plain: Bytes) -> Bytes {
    if plain.len() <= AT_ONCE {
        return compress(&plain).into();
    }
    let again = plain.clone();
    let compressed = tokio::task::spawn_blocking(move || compress(&plain)).await;
    // A runtime that is being shut down takes no more work of this kind.
    compressed.unwrap_or_else(|_| compress(&again)).into()
}

/// [`decompress`] beside other work: how much it will be, nobody knows before.
pub(crate) async fn decompress_aside(
    compressed: Bytes,
    limit: usize,
) -> Result<Vec<u8>, GunzipError> {
    let plain = tokio::task::spawn_blocking(move || decompress(&compressed, limit)).await;
    plain.unwrap_or(Err(GunzipError::Malformed))
}

/// What was compressed, if it has at most `limit` bytes. No more than that is ever held.
pub(crate) fn decompress(compressed: &[u8], limit: usize) -> Result<Vec<u8>, GunzipError> {
    let mut plain = Vec::new();
    let most = limit as u64 + 1;
    let read = MultiGzDecoder::new(compressed).take(most).read_to_end(&mut plain);
    read.map_err(|_: io::Error| GunzipError::Malformed)?;
    if plain.len() > limit {
        return Err(GunzipError::TooLarge { limit });
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    fn envelopes() -> Vec<u8> {
        let parts = (0_u32..2_000).map(|n| format!("<Tx id=\"{}\">{}</Tx>\r\n", n * 7919, n % 13));
        parts.collect::<String>().into_bytes()
    }

    #[test]
    fn what_is_compressed_comes_back() {
        for plain in [Vec::new(), b"<m/>".to_vec(), envelopes(), vec![0xFF; 100_000]] {
            let compressed = compress(&plain);
            assert_eq!(decompress(&compressed, plain.len()).unwrap(), plain);
        }
    }

    /// Readers are promised the same bytes again, also after an update. If this fails, the update
    /// compresses otherwise: it must not run beside nodes of the version before.
    #[test]
    fn the_same_bytes_are_compressed_to_these_bytes() {
        let digest = Sha256::digest(compress(&envelopes()));
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "4d439e7c8d05b14f824c93cb51864737df6967e0e050b7ab72e737968611fc18");
    }

    #[test]
    fn a_bomb_is_cut_off_and_what_is_no_gzip_is_refused() {
        let bomb = compress(&vec![0; 50_000_000]);
        assert!(bomb.len() < 1_000_000);
        assert_eq!(decompress(&bomb, 1_000), Err(GunzipError::TooLarge { limit: 1_000 }));
        let good = compress(b"<m/>");
        let mut trailed = good.clone();
        trailed.extend(b"more");
        for wrong in [&b""[..], b"<m/>", &good[..good.len() - 1], &trailed] {
            assert_eq!(decompress(wrong, 1_000), Err(GunzipError::Malformed));
        }
        let twice = [good.clone(), good].concat();
        assert_eq!(decompress(&twice, 1_000).unwrap(), b"<m/><m/>", "members follow each other");
    }
}
