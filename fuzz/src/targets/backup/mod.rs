//! The reader of backups.
//!
//! - It never panics, whatever the bytes and however they are cut into chunks; the chunks make no
//!   difference to what it says.
//! - It accepts exactly what the layout allows, and counts what is in there: `layout` reads the
//!   bytes a second time, on its own.
//! - A flipped bit, a missing end and a byte too many are refused.
//! - A frame that was doubled, left out or exchanged for another is refused, where that changes
//!   anything.

pub mod layout;

use wane::services::backup::{BackupError, Summary, Verifier};
use wane::store::Timestamp;

use crate::Input;
use crate::input::KEY_LENGTHS;
use layout::{Draft, header, latest_expiry};

/// Reads a backup in chunks, and says what it holds at an instant.
pub type Verify = fn(&[&[u8]], Timestamp) -> Result<Summary, BackupError>;

const LABEL_LENGTHS: [usize; 4] = [63, 64, 65, 255];
const VALUE_LENGTHS: [usize; 4] = [255, 65_536, 262_144, 262_145];

/// The reader that verification and restoration have.
pub fn target(bytes: &[u8]) {
    check(verify, bytes);
}

/// Reads chunks as they come from a file or a connection.
pub fn verify(chunks: &[&[u8]], now: Timestamp) -> Result<Summary, BackupError> {
    let mut verifier = Verifier::new(now);
    for chunk in chunks {
        verifier.push(chunk)?;
    }
    verifier.finish()
}

/// The properties of `verify`.
pub fn check(verify: Verify, bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let trial = Trial { verify, now: input.number(), places: input.clone() };
    let mut draft = describe(&mut input, trial.now);
    if trial.agrees(&draft.bytes) {
        trial.damage_is_refused(&draft.bytes);
    }
    let edited = edit_frames(&mut input, &draft);
    trial.agrees(&edited);

    let raw = input.rest();
    trial.agrees(raw);
    draft = Draft::begin(1);
    draft.frame(b'H', &header(trial.now, 1, b"raw"));
    draft.frame(b'R', raw);
    draft.trailer(1);
    trial.agrees(&draft.bytes);
}

#[derive(Debug)]
struct Trial<'a> {
    verify: Verify,
    now: u64,
    /// Where to cut and to flip.
    places: Input<'a>,
}

impl Trial<'_> {
    /// Whether the bytes are a sound backup, which both readers must say.
    fn agrees(&self, bytes: &[u8]) -> bool {
        let now = Timestamp::from_unix_millis(self.now);
        let said = (self.verify)(&[bytes], now);
        let told = |said: &Result<Summary, BackupError>| match said {
            Ok(summary) => format!("{summary:?}"),
            Err(error) => error.to_string(),
        };
        let at = self.places.clone().place(bytes.len() + 1);
        let (front, back) = bytes.split_at(at);
        let in_two = (self.verify)(&[front, back], now);
        assert_eq!(told(&in_two), told(&said), "cut at {at}: chunks make a difference");
        if bytes.len() <= 512 {
            let each: Vec<_> = bytes.chunks(1).collect();
            let bytewise = (self.verify)(&each, now);
            assert_eq!(told(&bytewise), told(&said), "byte by byte: chunks make a difference");
        }
        let expected = layout::read(bytes, now);
        let is_sound = expected.is_some();
        assert_eq!(said.ok(), expected, "the layout says otherwise");
        is_sound
    }

    fn damage_is_refused(&self, sound: &[u8]) {
        let mut places = self.places.clone();
        let (at, bit, cut) =
            (places.place(sound.len()), places.byte() % 8, places.place(sound.len()));
        let mut flipped = sound.to_vec();
        flipped[at] ^= 1 << bit;
        let longer = [sound, &[places.byte()]].concat();
        for (damage, bytes) in [
            (format!("bit {bit} of byte {at} flipped"), &*flipped),
            (format!("cut to {cut} bytes"), &sound[..cut]),
            ("one byte more".into(), &*longer),
        ] {
            let said = (self.verify)(&[bytes], Timestamp::from_unix_millis(self.now));
            assert!(said.is_err(), "{damage}: the layout says otherwise");
        }
    }
}

/// What is not as the writer would have it: one thing at most, so that nothing hides behind another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Twist {
    Version,
    StoreFormat,
    Label,
    HeaderKind,
    HeaderLength,
    FrameKind,
    EmptyFrame,
    Count,
    Digest,
    NoTrailer,
}

impl Twist {
    const ALL: [Self; 10] = [
        Self::Version,
        Self::StoreFormat,
        Self::Label,
        Self::HeaderKind,
        Self::HeaderLength,
        Self::FrameKind,
        Self::EmptyFrame,
        Self::Count,
        Self::Digest,
        Self::NoTrailer,
    ];
}

/// A backup as the writer makes it, or with a twist, under checksums that fit.
fn describe(input: &mut Input<'_>, now: u64) -> Draft {
    let twist = Twist::ALL.get(usize::from(input.byte() % 32).wrapping_sub(1)).copied();
    let odd = input.byte();
    let unless = |it, usual: u8| if twist == Some(it) { odd } else { usual };
    let mut draft = Draft::begin(unless(Twist::Version, 1).into());
    let created_at = input.number();
    let mut label = text(input, &LABEL_LENGTHS);
    label.truncate(255);
    if twist != Some(Twist::Label) {
        label.iter_mut().for_each(|byte| *byte = b'!' + *byte % 94);
    }
    let mut payload = header(created_at, unless(Twist::StoreFormat, 1).into(), &label);
    if twist == Some(Twist::HeaderLength) {
        payload.push(odd);
    }
    draft.frame(unless(Twist::HeaderKind, b'H'), &payload);
    let mut records = 0;
    for _ in 0..input.byte() % 4 {
        let rows = if twist == Some(Twist::EmptyFrame) { 0 } else { 1 + input.byte() % 3 };
        let mut payload = Vec::new();
        for _ in 0..rows {
            push_record(input, &mut payload, created_at, now);
        }
        draft.frame(unless(Twist::FrameKind, b'R'), &payload);
        records += u64::from(rows);
    }
    match twist {
        Some(Twist::NoTrailer) => {}
        Some(Twist::Count) => draft.trailer(u64::from(odd)),
        Some(Twist::Digest) => {
            draft.frame(b'T', &[&records.to_be_bytes()[..], &[odd; 32]].concat())
        }
        _ => draft.trailer(records),
    }
    draft
}

fn push_record(input: &mut Input<'_>, payload: &mut Vec<u8>, created_at: u64, now: u64) {
    let shape = input.byte();
    let flags = if shape < 0xE0 { shape & 3 } else { shape };
    let missing = u32::from(shape & 0x1C == 0x1C);
    let expiry = match input.byte() % 4 {
        0 => now,
        1 => latest_expiry(created_at).saturating_add_signed(i64::from(input.byte() as i8)),
        _ => input.number(),
    };
    let fence = input.number();
    let mut partition = if input.byte() & 1 == 0 { vec![0, 0, 0, input.byte()] } else { vec![] };
    partition.extend(text(input, &KEY_LENGTHS));
    let clustering = text(input, &KEY_LENGTHS);
    let value = text(input, &VALUE_LENGTHS);
    payload.push(flags);
    payload.extend((partition.len() as u16).to_be_bytes());
    payload.extend((clustering.len() as u16).to_be_bytes());
    payload.extend((value.len() as u32 + missing).to_be_bytes());
    if flags & 1 != 0 {
        payload.extend(expiry.to_be_bytes());
    }
    if flags & 2 != 0 {
        payload.extend(fence.to_be_bytes());
    }
    payload.extend([partition, clustering, value].concat());
}

/// A byte string, mostly a short one, so that inputs of a few hundred bytes make many records.
fn text(input: &mut Input<'_>, named_lengths: &[usize]) -> Vec<u8> {
    match input.byte() {
        len @ ..0xF0 => (0..len % 12).map(|_| input.byte()).collect(),
        _ => input.text(named_lengths),
    }
}

/// The same bytes with a frame doubled, left out, or exchanged for another.
fn edit_frames(input: &mut Input<'_>, draft: &Draft) -> Vec<u8> {
    let mut frames = draft.frames.clone();
    let (at, other) = (input.place(frames.len()), input.place(frames.len()));
    match input.byte() % 3 {
        0 => frames.insert(other, frames[at].clone()),
        1 => drop(frames.remove(at)),
        _ => frames.swap(at, other),
    }
    let preamble = &draft.bytes[..draft.frames[0].start];
    let parts = frames.into_iter().map(|frame| &draft.bytes[frame]);
    std::iter::once(preamble).chain(parts).collect::<Vec<_>>().concat()
}
