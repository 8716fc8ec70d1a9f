use super::*;

fn build_of(version: &str, behaviour: &str, recipe: &str) -> Build {
    Build {
        qemu: Qemu {
            id: format!("qemu-{version}"),
            behaviour: behaviour.into(),
            version: version.into(),
            program: "bin/qemu-system-x86_64".into(),
            firmware: "share/qemu".into(),
            source: format!("qemu {version}"),
        },
        patches: Vec::new(),
        headers: Vec::new(),
        options: Vec::new(),
        compiler: "gcc 12".into(),
        recipe: recipe.into(),
    }
}

#[test]
fn the_pinned_source_matches_by_behaviour() {
    let recipe = Recipe::shipped();
    let behaviour = recipe.behaviour(&Inputs::pinned());
    let found = |behaviour: &str| {
        let build = build_of(VERSION, behaviour, &recipe.digest());
        matching(vec![build], &Source::Pinned, &recipe).map(|qemu| qemu.version)
    };
    assert_eq!(found(&behaviour), Some(VERSION.into()));
    assert_eq!(found("another firmware"), None);
}

#[test]
fn another_version_matches_with_this_programs_recipe_only() {
    let recipe = Recipe::shipped();
    let source = Source::Version("1:10.0.2+ds-2".into());
    let found = |version, recipe_digest: &str| {
        matching(vec![build_of(version, "b", recipe_digest)], &source, &recipe).is_some()
    };
    assert!(found("1:10.0.2+ds-2", &recipe.digest()));
    assert!(!found("1:10.0.2+ds-2", "other patches"));
    assert!(!found("1:10.0.3+ds-1", &recipe.digest()));
}

#[test]
fn the_default_is_the_pinned_version() {
    assert_eq!(Source::default().version(), VERSION);
    assert_eq!(Source::Version("1:9".into()).version(), "1:9");
}
