//! Style as a test: what a reviewer would otherwise have to say again and again.
//!
//! Each rule takes the whole tree and returns what breaks it; a broken rule names file and line.
//! The last test is the control: a tree that breaks every rule is caught by every rule.

use std::fs;
use std::path::Path;

/// Lines that a source file may have.
const FILE_BUDGET: usize = 600;

/// Words that say nothing of what a file or type is for.
const EMPTY_NAMES: [&str; 7] =
    ["util", "helper", "common", "misc", "manager", "handler", "processor"];

/// A text file of the tree.
struct Text {
    path: String,
    body: String,
}

impl Text {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.body.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    fn stem(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.split('.').next().unwrap_or_default()
    }
}

type Rule = fn(&[Text]) -> Vec<String>;

const RULES: [(&str, Rule); 9] = [
    ("files stay under budget", over_budget),
    ("modules begin with their promise", no_header),
    ("names say what a thing is", empty_name),
    ("nothing is left for later", left_for_later),
    ("no code is kept in comments", commented_code),
    ("source is ASCII", not_ascii),
    ("markdown has one title", not_one_title),
    ("no path of one machine", machine_path),
    ("each backend is documented and tested", backend_left_out),
];

#[test]
fn the_tree_is_tidy() {
    let tree = read_tree();
    assert!(tree.len() > 10, "the tree was not found");
    let broken: Vec<_> = RULES
        .iter()
        .flat_map(|(rule, check)| check(&tree).into_iter().map(move |at| format!("{rule}: {at}")))
        .collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

fn rust(tree: &[Text]) -> impl Iterator<Item = &Text> {
    tree.iter().filter(|text| text.is_rust())
}

fn over_budget(tree: &[Text]) -> Vec<String> {
    let long = rust(tree).filter(|text| text.body.lines().count() > FILE_BUDGET);
    long.map(|text| format!("{} has over {FILE_BUDGET} lines", text.path)).collect()
}

fn no_header(tree: &[Text]) -> Vec<String> {
    let bare = rust(tree).filter(|text| !text.body.starts_with("//!"));
    bare.map(|text| format!("{} does not start with //!", text.path)).collect()
}

fn empty_name(tree: &[Text]) -> Vec<String> {
    let mut broken = Vec::new();
    for text in rust(tree) {
        if EMPTY_NAMES.iter().any(|word| text.stem().contains(word)) {
            broken.push(text.path.clone());
        }
        for (number, line) in text.lines() {
            let type_name = ["struct ", "enum ", "trait "].iter().find_map(|keyword| {
                line.trim_start().trim_start_matches("pub ").strip_prefix(keyword)
            });
            let name = type_name.unwrap_or_default().to_lowercase();
            let name = name.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            if EMPTY_NAMES.iter().any(|word| name.contains(word)) {
                broken.push(format!("{}:{number} names a type {name}", text.path));
            }
        }
    }
    broken
}

fn matching(tree: &[Text], broken: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for text in tree {
        let lines = text.lines().filter(|(_, line)| broken(line));
        found.extend(lines.map(|(number, line)| format!("{}:{number} {}", text.path, line.trim())));
    }
    found
}

fn left_for_later(tree: &[Text]) -> Vec<String> {
    let words = [concat!("FIX", "ME"), concat!("TO", "DO"), concat!("XX", "X:")];
    matching(tree, |line| words.iter().any(|word| line.contains(word)))
}

fn commented_code(tree: &[Text]) -> Vec<String> {
    let sources: Vec<_> = rust(tree).map(copy).collect();
    matching(&sources, |line| {
        let comment = line.trim_start().strip_prefix("// ").unwrap_or_default();
        let starts = ["let ", "fn ", "pub ", "use ", "impl ", "match ", "return "];
        comment.ends_with(';')
            || (starts.iter().any(|s| comment.starts_with(s)) && comment.ends_with('{'))
    })
}

fn not_ascii(tree: &[Text]) -> Vec<String> {
    let sources: Vec<_> = rust(tree).map(copy).collect();
    matching(&sources, |line| !line.is_ascii())
}

fn not_one_title(tree: &[Text]) -> Vec<String> {
    let mut broken = Vec::new();
    for text in tree.iter().filter(|text| text.path.ends_with(".md")) {
        let mut fenced = false;
        let titles = text.body.lines().filter(|line| {
            fenced ^= line.starts_with("```");
            !fenced && line.starts_with("# ")
        });
        let count = titles.count();
        if count != 1 {
            broken.push(format!("{} has {count} titles", text.path));
        }
    }
    broken
}

fn machine_path(tree: &[Text]) -> Vec<String> {
    let roots = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    matching(tree, |line| roots.iter().any(|root| line.contains(root)))
}

/// A backend is a folder; its harness, its row in the contract and its row in the README follow.
fn backend_left_out(tree: &[Text]) -> Vec<String> {
    let has = |path: &str| tree.iter().any(|text| text.path == path);
    let says = |path: &str, backend: &str| {
        let row = format!("`{backend}`");
        tree.iter().any(|text| text.path == path && text.body.contains(&row))
    };
    let mut broken = Vec::new();
    for backend in ["file", "redis", "cassandra", "dynamodb"] {
        if !has(&format!("crates/wane-backends/src/{backend}/mod.rs")) {
            continue;
        }
        if !has(&format!("crates/wane-backends/tests/it/harness/{backend}.rs")) {
            broken.push(format!("{backend} has no harness"));
        }
        for page in ["docs/contract.md", "README.md"] {
            if !says(page, backend) {
                broken.push(format!("{page} does not speak of `{backend}`"));
            }
        }
    }
    broken
}

fn copy(text: &Text) -> Text {
    Text { path: text.path.clone(), body: text.body.clone() }
}

fn read_tree() -> Vec<Text> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut tree = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the tree") {
            let path = entry.expect("an entry of the tree").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && !name.starts_with('.') && !["target", "out"].contains(&name) {
                folders.push(path);
            } else if is_text(&path) {
                let body = fs::read_to_string(&path).expect("a text file");
                let inside = path.strip_prefix(&root).expect("a path below the root");
                tree.push(Text { path: inside.display().to_string(), body });
            }
        }
    }
    tree
}

fn is_text(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    ["rs", "md", "toml", "go", "sh"].contains(&ending)
}

/// The control: without it a rule that never fires would look like a tidy tree.
#[test]
fn every_rule_catches_its_breach() {
    let text = |path: &str, body: String| Text { path: path.into(), body };
    let later = concat!("// FIX", "ME");
    let path = concat!("/ro", "ot/x");
    let untidy = [
        text("src/helper.rs", format!("struct Manager;\n{later}\n// let a = 1;\n\u{e9} {path}\n")),
        text("src/long.rs", "\n".repeat(FILE_BUDGET + 1)),
        text("a.md", "# one\n# two\n".into()),
        text("crates/wane-backends/src/file/mod.rs", String::new()),
    ];
    for (rule, check) in RULES {
        assert!(!check(&untidy).is_empty(), "not caught: {rule}");
    }
}
