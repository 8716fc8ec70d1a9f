use serde_json::json;

use super::*;

fn ingredients() -> Ingredients {
    Ingredients {
        cell: Cell {
            topology: "2:1".into(),
            kernel: "lab".into(),
            boot_params: String::new(),
            scheduler: "stock".into(),
            workload: "rename".into(),
        },
        accel: Accel::Tcg,
        kernels: BTreeMap::from([("subject".into(), "lab-6.12".into())]),
        machines: json!({"fairness": "per-vm", "vms": [{"vcpus": 4, "memory_mib": 768}]}),
        run: json!({"job": {"argv": ["rename"], "time_limit_s": 30.5}}),
        reading: json!({"metric": {"name": "renames"}}),
        programs: BTreeMap::from([("unspin".into(), "0f".into())]),
        fresh_boots: false,
        host: Some(Host { cpu: "a".into(), kernel: "6.1".into(), qemu: "7.2".into() }),
        virtual_time: Some(VirtualTime { qemu: "q".into(), prices: "p".into() }),
    }
}

fn identity(ingredients: &Ingredients) -> Identity {
    ingredients.identity(Draw::Repeat(1)).unwrap()
}

/// Collects every scalar of a value, as a JSON pointer.
fn pointers(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| pointers(value, &format!("{path}/{key}"), found));
        }
        Value::Array(list) => {
            let each = list.iter().enumerate();
            each.for_each(|(index, value)| pointers(value, &format!("{path}/{index}"), found));
        }
        _ => found.push(path.to_owned()),
    }
}

#[test]
fn each_ingredient_changes_it() {
    let base = ingredients();
    let json = serde_json::to_value(&base).unwrap();
    let mut places = Vec::new();
    pointers(&json, "", &mut places);
    assert!(places.len() > 15, "{places:?}");
    for place in places {
        let mut changed = json.clone();
        let value = changed.pointer_mut(&place).unwrap();
        *value = match &*value {
            Value::Bool(old) => json!(!old),
            Value::Number(old) => json!(old.as_f64().unwrap() + 1.0),
            _ if place == "/accel" => json!("vt"),
            Value::String(old) => json!(format!("{old}x")),
            other => panic!("{place}: {other}"),
        };
        // A count may become a float on the way, so the test compares what serde reads back.
        let changed: Ingredients = serde_json::from_value(changed).unwrap();
        assert_ne!(identity(&changed), identity(&base), "{place}");
        assert_ne!(changed.setting().unwrap(), base.setting().unwrap(), "{place}");
        assert!(!changed.differences(&base).is_empty(), "{place}");
    }
}

#[test]
fn the_draw_changes_it_but_not_the_setting() {
    let base = ingredients();
    let of = |draw| base.identity(draw).unwrap();
    assert_eq!(of(Draw::Repeat(1)), of(Draw::Repeat(1)));
    assert_ne!(of(Draw::Repeat(1)), of(Draw::Repeat(2)));
    assert_ne!(of(Draw::Repeat(1)), of(Draw::Seed(1)));
    assert_ne!(of(Draw::Seed(u64::MAX)), of(Draw::Seed(u64::MAX - 1)));
}

#[test]
fn the_order_of_fields_does_not() {
    let one: Value = serde_json::from_str(r#"{"a": [1, {"x": 1, "y": "z"}], "b": 2}"#).unwrap();
    let other: Value = serde_json::from_str(r#"{"b":2,"a":[1,{"y":"z","x":1}]}"#).unwrap();
    assert_eq!(Identity::of(&one).unwrap(), Identity::of(&other).unwrap());
    let list = json!({"a": [{"x": 1, "y": "z"}, 1], "b": 2});
    assert_ne!(Identity::of(&one).unwrap(), Identity::of(&list).unwrap());
}

#[test]
fn it_is_the_start_of_the_sha_256_of_compact_json() {
    let mut text = String::new();
    canonical(&json!({"b": "a\"b", "a": [0.5, null]}), &mut text);
    assert_eq!(text, r#"{"a":[0.5,null],"b":"a\"b"}"#);
    // `printf abc | sha256sum`
    assert_eq!(Identity::of_bytes(b"abc").as_str(), "ba7816bf8f01cfea");
}

#[test]
fn differences_name_what_differs() {
    let base = ingredients();
    let mut other = base.clone();
    other.programs.insert("unspin".into(), "10".into());
    other.machines["vms"][0]["vcpus"] = json!(2);
    other.host = None;
    assert_eq!(base.differences(&other), ["host", "machines.vms", "programs.unspin"]);
    assert!(base.differences(&base).is_empty());
}
