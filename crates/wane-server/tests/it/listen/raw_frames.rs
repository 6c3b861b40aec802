//! HTTP/2 frames written and read by hand, for clients that no library would be.

use super::*;

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const ACK: u8 = 1;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

/// `SETTINGS_INITIAL_WINDOW_SIZE` = 0.
pub(super) const NO_WINDOW: &[u8] = &[0, 4, 0, 0, 0, 0];

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [head.as_slice(), &stream.to_be_bytes(), payload].concat()
}

/// A whole request head without a body: method by its index in the static table, scheme, path.
pub(super) fn asking(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &head(0x82, path))
}

pub(super) fn sending(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &head(0x83, path))
}

pub(super) fn head(method: u8, path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).expect("a short path");
    [[method, 0x86, 0x04, length].as_slice(), path.as_bytes()].concat()
}

impl Client<TcpStream> {
    /// Opens HTTP/2 with these settings.
    pub(super) async fn open_http2(&mut self, settings: &[u8]) {
        self.send(&[PREFACE, &frame(SETTINGS, 0, 0, settings)].concat()).await;
    }

    /// The next frame; none once the server has closed. Settings and PINGs are acknowledged.
    pub(super) async fn frame(&mut self) -> Option<Frame> {
        loop {
            let frame = timeout(SOON, self.read_frame()).await.expect("a frame in time")?;
            let answer = match (frame.kind, frame.flags) {
                (SETTINGS, 0) => super::raw_frames::frame(SETTINGS, ACK, 0, &[]),
                (PING, 0) => super::raw_frames::frame(PING, ACK, 0, &frame.payload),
                (SETTINGS | PING | WINDOW_UPDATE, _) => continue,
                _ => return Some(frame),
            };
            self.stream.write_all(&answer).await.ok()?;
        }
    }

    async fn read_frame(&mut self) -> Option<Frame> {
        let whole = loop {
            if let Some(length) = self.received.first_chunk::<9>() {
                let whole = 9 + u32::from_be_bytes([0, length[0], length[1], length[2]]) as usize;
                if self.received.len() >= whole {
                    break whole;
                }
            }
            self.receive().await?;
        };
        let bytes: Vec<u8> = self.received.drain(..whole).collect();
        let stream = u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]);
        Some(Frame { kind: bytes[3], flags: bytes[4], stream, payload: bytes[9..].to_vec() })
    }

    /// All frames until the server closes.
    pub(super) async fn frames(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.frame().await {
            frames.push(frame);
        }
        frames
    }
}

/// The error codes of the GOAWAY frames among `frames`.
pub(super) fn farewells(frames: &[Frame]) -> Vec<u8> {
    frames.iter().filter(|frame| frame.kind == GOAWAY).map(|frame| frame.payload[7]).collect()
}
