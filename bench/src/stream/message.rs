//! Messages: envelopes of 3,000 bytes, made once, each with a number of its own in its EndToEndId.
//!
//! Nearly half of a message is a signature that no compression makes smaller, with line breaks in it. A
//! post is a copy of a body that was made before, with ten numbers put in.
//!
//! Invariant: the number lies at the same place of every message, so that it is read without parsing.

use crate::BoxError;
use crate::workload::Chance;

/// Bytes of a message.
pub(super) const MESSAGE: usize = 3_000;

/// Messages of a batch.
pub(super) const BATCH: usize = 10;

/// Letters and digits of the number at the end of an EndToEndId.
const DIGITS: usize = 11;

/// Bodies to choose from.
const MOLDS: usize = 16;

const BOUNDARY: &str = "bench";

const BEFORE_SIGNATURE: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
<Envelope xmlns=\"https://www.bcb.gov.br/pi/pacs.008/1.13\">\n  <AppHdr>\n    <Fr>\n      <FIId>\n        \
<FinInstnId>\n          <Othr>\n            <Id>00000208</Id>\n          </Othr>\n        </FinInstnId>\n      \
</FIId>\n    </Fr>\n    <To>\n      <FIId>\n        <FinInstnId>\n          <Othr>\n            \
<Id>00038166</Id>\n          </Othr>\n        </FinInstnId>\n      </FIId>\n    </To>\n    \
<BizMsgIdr>M00000208abcdefghijklmnopqrstuvw</BizMsgIdr>\n    <MsgDefIdr>pacs.008.spi.1.13</MsgDefIdr>\n    \
<CreDt>2026-01-01T12:00:00.000Z</CreDt>\n    <Sgntr>\n";

const BEFORE_NUMBER: &str = "    </Sgntr>\n  </AppHdr>\n  <Document>\n    <FIToFICstmrCdtTrf>\n      \
<GrpHdr>\n        <MsgId>M00000208abcdefghijklmnopqrstuvw</MsgId>\n        \
<CreDtTm>2026-01-01T12:00:00.000Z</CreDtTm>\n        <NbOfTxs>1</NbOfTxs>\n      </GrpHdr>\n      \
<CdtTrfTxInf>\n        <PmtId>\n          <EndToEndId>E00000208202601011200";

const AFTER_NUMBER: &str = "</EndToEndId>\n        </PmtId>\n        \
<IntrBkSttlmAmt Ccy=\"BRL\">1000.00</IntrBkSttlmAmt>\n        <AccptncDtTm>2026-01-01T12:00:00.000Z</AccptncDtTm>\n        \
<ChrgBr>SLEV</ChrgBr>\n        <Dbtr>\n          <Nm>Fulano da Silva</Nm>\n          <Id>\n            \
<PrvtId>\n              <Othr>\n                <Id>12345678901</Id>\n              </Othr>\n            \
</PrvtId>\n          </Id>\n        </Dbtr>\n        <CdtrAgt>\n          <FinInstnId>\n            \
<ClrSysMmbId>\n              <MmbId>00038166</MmbId>\n            </ClrSysMmbId>\n          </FinInstnId>\n        \
</CdtrAgt>\n        <Purp>\n          <Cd>IPAY</Cd>\n        </Purp>\n      </CdtTrfTxInf>\n    \
</FIToFICstmrCdtTrf>\n  </Document>\n</Envelope>\n";

/// Bytes of the signature: what the rest leaves of a message.
const SIGNATURE: usize =
    MESSAGE - BEFORE_SIGNATURE.len() - BEFORE_NUMBER.len() - DIGITS - AFTER_NUMBER.len();

const _: () = assert!(SIGNATURE > MESSAGE / 3, "too much of a message would compress");

/// Where the number of a message is.
const NUMBER_AT: usize = BEFORE_SIGNATURE.len() + SIGNATURE + BEFORE_NUMBER.len();

/// The type of a post.
pub(super) const CONTENT_TYPE: &str = "multipart/mixed; boundary=bench";

/// Bodies of posts, but for the numbers of their messages.
#[derive(Debug)]
pub(super) struct Molds {
    bodies: Vec<Vec<u8>>,
    /// Where messages begin, the same in all.
    places: Vec<usize>,
}

impl Molds {
    pub(super) fn made() -> Self {
        let mut chance = Chance::seeded(9);
        let (mut bodies, mut places) = (Vec::new(), Vec::new());
        for _ in 0..MOLDS {
            let mut body = Vec::new();
            places.clear();
            for _ in 0..BATCH {
                let head = format!("--{BOUNDARY}\r\nContent-Type: application/xml\r\n\r\n");
                body.extend(head.into_bytes());
                places.push(body.len());
                body.extend(message(&mut chance));
                body.extend(b"\r\n");
            }
            body.extend(format!("--{BOUNDARY}--\r\n").into_bytes());
            bodies.push(body);
        }
        Self { bodies, places }
    }

    /// Bytes of a body.
    pub(super) fn length(&self) -> usize {
        self.bodies.first().map_or(0, Vec::len)
    }

    /// Appends the body of the post with this number, whose messages have ten numbers of their own.
    pub(super) fn pour(&self, post: u64, request: &mut Vec<u8>) {
        let start = request.len();
        request.extend(&self.bodies[post as usize % MOLDS]);
        for (index, place) in self.places.iter().enumerate() {
            let number = start + place + NUMBER_AT;
            let digits = digits(post * BATCH as u64 + index as u64);
            request[number..number + DIGITS].copy_from_slice(&digits);
        }
    }
}

fn message(chance: &mut Chance) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let signature = (1..=SIGNATURE).map(|place| match place % 77 {
        0 => b'\n',
        _ => LETTERS[chance.below(64) as usize],
    });
    let mut message = BEFORE_SIGNATURE.as_bytes().to_vec();
    message.extend(signature);
    message.extend(BEFORE_NUMBER.as_bytes());
    message.extend([b'0'; DIGITS]);
    message.extend(AFTER_NUMBER.as_bytes());
    message
}

fn digits(mut number: u64) -> [u8; DIGITS] {
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit = match (number % 36) as u8 {
            value @ 0..10 => b'0' + value,
            value => b'a' + value - 10,
        };
        number /= 36;
    }
    digits
}

/// The number of a message: ten times that of its post, and its place in it.
pub(super) fn number_of(message: &[u8]) -> Result<u64, BoxError> {
    let digits = message.get(NUMBER_AT..NUMBER_AT + DIGITS).ok_or("a message that was cut")?;
    Ok(u64::from_str_radix(std::str::from_utf8(digits)?, 36)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_has_its_length_and_a_number_that_is_read_back() {
        let molds = Molds::made();
        let mut request = b"head".to_vec();
        molds.pour(123_456_789, &mut request);
        assert_eq!(request.len(), 4 + molds.length());
        for (index, place) in molds.places.iter().enumerate() {
            let message = &request[4 + place..4 + place + MESSAGE];
            assert!(message.starts_with(b"<?xml") && message.ends_with(b"</Envelope>\n"));
            assert_eq!(number_of(message).unwrap(), 1_234_567_890 + index as u64);
        }
    }

    #[test]
    fn messages_are_not_alike() {
        let molds = Molds::made();
        let signature = |body: usize, message: usize| {
            let start = molds.places[message] + BEFORE_SIGNATURE.len();
            &molds.bodies[body][start..start + SIGNATURE]
        };
        assert_ne!(signature(0, 0), signature(0, 1));
        assert_ne!(signature(0, 0), signature(1, 0));
    }

    #[test]
    fn what_is_cut_has_no_number() {
        assert!(number_of(b"<Envelope/>").is_err());
    }
}
