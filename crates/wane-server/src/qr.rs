//! QR codes that phones read: as SVG for pages, and as text for terminals.
//!
//! Both forms are dark on white inside a quiet zone of four modules, whatever the page or the
//! terminal around them looks like: many readers do not find a code that is light on dark. The
//! colours of the terminal form are the two of the 256 that themes leave alone.
//!
//! What is drawn is read back by a decoder in the tests.

use qrcodegen::{QrCode, QrCodeEcc};

/// The white border, in modules.
const QUIET_ZONE: i32 = 4;

/// Black on white in a terminal, and its own colours again.
const BLACK_ON_WHITE: &str = "\x1b[38;5;16;48;5;231m";
const PLAIN: &str = "\x1b[0m";

/// Why there is no QR code of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a QR code cannot hold {bytes} bytes; give a shorter text")]
pub struct TooLong {
    /// How long the text is.
    pub bytes: usize,
}

/// The QR code of a text as an SVG document.
///
/// It has no size of its own: the page gives it one. To a screen reader it is an image that is
/// called by the text.
pub fn svg(text: &str) -> Result<String, TooLong> {
    let modules = Modules::of(text)?;
    let side = modules.side();
    let path: String = (0..side).flat_map(|row| dark_runs(&modules, row)).collect();
    let title = escaped(text);
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {side} {side}\" role=\"img\" \
         shape-rendering=\"crispEdges\"><title>QR code of {title}</title>\
         <rect width=\"{side}\" height=\"{side}\" fill=\"#fff\"/>\
         <path fill=\"#000\" d=\"{path}\"/></svg>"
    ))
}

/// The QR code of a text as lines for a terminal, two rows of modules in each.
pub fn terminal(text: &str) -> Result<String, TooLong> {
    let modules = Modules::of(text)?;
    let side = modules.side();
    let mut lines = String::new();
    for row in (0..side).step_by(2) {
        lines += BLACK_ON_WHITE;
        lines.extend((0..side).map(|column| {
            match (modules.is_dark(column, row), modules.is_dark(column, row + 1)) {
                (true, true) => '\u{2588}',
                (true, false) => '\u{2580}',
                (false, true) => '\u{2584}',
                (false, false) => ' ',
            }
        }));
        lines += PLAIN;
        lines.push('\n');
    }
    Ok(lines)
}

/// The dark modules of a code, inside its quiet zone.
struct Modules(QrCode);

impl Modules {
    fn of(text: &str) -> Result<Self, TooLong> {
        let code = QrCode::encode_text(text, QrCodeEcc::Medium);
        code.map(Self).map_err(|_| TooLong { bytes: text.len() })
    }

    /// How many modules wide and high it is, with the quiet zone.
    fn side(&self) -> i32 {
        self.0.size() + 2 * QUIET_ZONE
    }

    fn is_dark(&self, column: i32, row: i32) -> bool {
        self.0.get_module(column - QUIET_ZONE, row - QUIET_ZONE)
    }
}

/// The dark modules of a row as parts of a path, neighbours as one: drawn one by one they would
/// have hairlines between them.
fn dark_runs(modules: &Modules, row: i32) -> Vec<String> {
    let mut runs = Vec::new();
    let mut begin = None;
    // The last module is in the quiet zone, so every run has ended by then.
    for column in 0..modules.side() {
        match (begin, modules.is_dark(column, row)) {
            (None, true) => begin = Some(column),
            (Some(from), false) => {
                runs.push(format!("M{from} {row}h{}v1H{from}z", column - from));
                begin = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }
    runs
}

/// A text inside of an XML element, where control characters are not allowed.
fn escaped(text: &str) -> String {
    let text = text.replace(char::is_control, "");
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use rqrr::PreparedImage;

    use super::*;

    const LINK: &str = "https://login.example.com/device?user_code=BCDFG-HJKLM";

    /// Pixels of a module: what a camera sees of one.
    const PIXELS: usize = 4;

    /// Pictures by module: rows of whether a module is dark.
    type Picture = Vec<Vec<bool>>;

    fn read(picture: &Picture) -> Vec<String> {
        let side = picture.len() * PIXELS;
        let width = picture[0].len() * PIXELS;
        let grey = |x: usize, y: usize| if picture[y / PIXELS][x / PIXELS] { 0 } else { 255 };
        let mut image = PreparedImage::prepare_from_greyscale(width, side, grey);
        let grids = image.detect_grids();
        grids.iter().filter_map(|grid| Some(grid.decode().ok()?.1)).collect()
    }

    /// What a terminal that is light on dark shows, two rows of modules for each line.
    fn shown(lines: &str) -> Picture {
        const ON_DARK: (bool, bool) = (false, true);
        let mut picture = Picture::new();
        let (mut is_ink_dark, mut is_paper_dark) = ON_DARK;
        for line in lines.lines() {
            let mut rows = [Vec::new(), Vec::new()];
            let mut rest = line;
            while let Some(letter) = rest.chars().next() {
                if let Some(codes) = rest.strip_prefix("\x1b[") {
                    let (codes, after) = codes.split_once('m').expect("a colour");
                    (is_ink_dark, is_paper_dark) = match codes {
                        "0" => ON_DARK,
                        "38;5;16;48;5;231" => (true, false),
                        codes => panic!("colours {codes}"),
                    };
                    rest = after;
                    continue;
                }
                let (upper, lower) = match letter {
                    '\u{2588}' => (is_ink_dark, is_ink_dark),
                    '\u{2580}' => (is_ink_dark, is_paper_dark),
                    '\u{2584}' => (is_paper_dark, is_ink_dark),
                    ' ' => (is_paper_dark, is_paper_dark),
                    letter => panic!("{letter:?}"),
                };
                rows[0].push(upper);
                rows[1].push(lower);
                rest = &rest[letter.len_utf8()..];
            }
            picture.extend(rows);
        }
        picture
    }

    /// What the one path of a drawing covers.
    fn drawn(svg: &str) -> Picture {
        let between = |from: &str, to: &str| {
            let rest = svg.split_once(from).expect("there").1;
            rest.split_once(to).expect("ended").0.to_owned()
        };
        let number = |text: &str| text.parse::<usize>().expect("a number");
        let side = number(&between("viewBox=\"0 0 ", " "));
        let mut picture = vec![vec![false; side]; side];
        for part in between(" d=\"M", "z\"").split("zM") {
            let (corner, rest) = part.split_once('h').expect("a width");
            let (x, y) = corner.split_once(' ').expect("two places");
            let (width, back) = rest.split_once("v1H").expect("one module high");
            assert_eq!(back, x, "it ends where it began");
            picture[number(y)][number(x)..][..number(width)].fill(true);
        }
        picture
    }

    #[test]
    fn a_phone_reads_the_drawing() {
        for text in [LINK, "HTTP://A", &"x".repeat(400)] {
            assert_eq!(read(&drawn(&svg(text).expect("short"))), [text]);
        }
    }

    #[test]
    fn a_phone_reads_the_lines_on_a_dark_terminal() {
        for text in [LINK, "HTTP://A", &"x".repeat(400)] {
            assert_eq!(read(&shown(&terminal(text).expect("short"))), [text]);
        }
    }

    /// The control: the same lines in the colours of the terminal are not read.
    #[test]
    fn without_its_colours_it_is_not_read_on_a_dark_terminal() {
        let lines = terminal(LINK).expect("short").replace(BLACK_ON_WHITE, PLAIN);
        assert_eq!(read(&shown(&lines)), [""; 0]);
    }

    #[test]
    fn four_light_modules_are_all_around() {
        let lines = terminal(LINK).expect("short");
        let all_light = |row: &[bool]| row.iter().all(|is_dark| !is_dark);
        for mut picture in [drawn(&svg(LINK).expect("short")), shown(&lines)] {
            // The lower half of the last line belongs to no row of modules.
            picture.truncate(picture[0].len());
            let side = picture.len();
            assert!(picture[..4].iter().chain(&picture[side - 4..]).all(|row| all_light(row)));
            assert!(picture.iter().all(|row| all_light(&row[..4]) && all_light(&row[side - 4..])));
            assert!(!all_light(&picture[4]), "and no more than four");
        }
    }

    #[test]
    fn a_drawing_is_an_image_with_a_name_to_screen_readers() {
        let drawing = svg("a<b>&c\u{7}").expect("short");
        assert!(drawing.contains("role=\"img\""));
        assert!(drawing.contains("<title>QR code of a&lt;b&gt;&amp;c</title>"));
    }

    #[test]
    fn a_text_that_no_code_can_hold_is_an_error() {
        let long = "x".repeat(3_000);
        assert_eq!(svg(&long), Err(TooLong { bytes: 3_000 }));
        assert_eq!(terminal(&long), Err(TooLong { bytes: 3_000 }));
    }
}
