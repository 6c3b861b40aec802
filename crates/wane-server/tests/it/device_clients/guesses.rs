//! Guessing user codes through the application: what counts as a miss, and what does not.

use super::*;

/// Misses that a person may have in a quarter of an hour, and all people of an application together.
const OF_ONE: usize = 5;
const OF_ALL: usize = 1_000;

impl Login {
    fn guess(&self, subject: &str, code: &str) -> Answer {
        self.decide("approve", &json!({ "userCode": code, "subject": subject }))
    }

    #[track_caller]
    fn misses(&self, subject: &str, codes: impl IntoIterator<Item = String>) {
        for code in codes {
            let answer = self.guess(subject, &code);
            assert_eq!((answer.status, &*answer.code()), (404, "absent"), "{code}");
        }
    }
}

#[track_caller]
fn assert_limited(answer: &Answer) {
    assert_eq!((answer.status, &*answer.code()), (429, "limited"), "{}", answer.body);
    let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=900).contains(&seconds), "{seconds}");
}

/// Traps: a reload of the page spent the attempt budget; a success cleared the attacker's failures;
/// variants of case and dashes evaded the limiter. One budget shows all three.
#[test]
fn only_distinct_misses_count_and_a_success_forgives_none() {
    let login = Login::new();
    // The same code again is the same attempt, however it is written.
    login.misses("mallory", (0..20).map(|_| wrong_code(0)));
    let bare = wrong_code(0).replace('-', "");
    let dashed: String = bare.chars().flat_map(|letter| [letter, '-']).collect();
    for written in [bare.clone(), bare.to_lowercase(), format!(" {bare} "), dashed] {
        login.misses("mallory", [written]);
    }
    // What cannot be a code is looked for nowhere.
    login.misses("mallory", (0..20).map(|number| format!("AEIOU-{number}")));
    // Successes in between.
    for number in 1..OF_ONE {
        assert_eq!(login.guess("mallory", &login.demo().user_code).status, 200);
        login.misses("mallory", [wrong_code(number)]);
    }
    assert_limited(&login.guess("mallory", &wrong_code(OF_ONE)));
    // A code that is right is not tried either: no answer tells it from a wrong one.
    let codes = login.demo();
    let bare = codes.user_code.replace('-', "");
    for typed in [&codes.user_code, &bare, &bare.to_lowercase()] {
        assert_limited(&login.guess("mallory", typed));
    }
    assert_eq!(login.refused(&codes), "authorization_pending");
    assert_eq!(login.guess("alice", &codes.user_code).status, 200, "she has guessed nothing");
}

/// Many names do not help: the application has a budget too, and it is not another's.
#[test]
fn the_people_of_an_application_share_a_budget_that_is_its_own() {
    let login = Login::new();
    let other = login.server.make_app("other", "app");
    for person in 0..OF_ALL / OF_ONE {
        let codes = (0..OF_ONE).map(|miss| wrong_code(person * OF_ONE + miss));
        login.misses(&format!("person-{person}"), codes);
    }
    assert_limited(&login.guess("alice", &wrong_code(OF_ALL)));
    assert_limited(&login.decide("deny", &json!({ "userCode": wrong_code(OF_ALL) })));
    let body = json!({ "userCode": wrong_code(OF_ALL), "subject": "alice" }).to_string();
    let path = "/api/v2/apps/other/app/devices/approve";
    let answer = login.server.ask_as(Some(&other), "POST", path, &body);
    assert_eq!((answer.status, &*answer.code()), (404, "absent"));
}
