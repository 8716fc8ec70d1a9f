//! Writes private configuration and source files for apt.
//!
//! Source of the formats: apt.conf(5), sources.list(5).

use std::path::Path;
use std::process::Command;

use super::mirror::Mirrors;

/// The system's apt configuration.
pub(super) const SYSTEM: &str = "/etc/apt";

/// The https options, in lower case, that name trusted authorities and the client's certificate.
/// Mirrors inside a company may need them.
const CERTIFICATES: [&str; 4] = ["cainfo", "capath", "sslcert", "sslkey"];

/// Returns one line per kind (`deb`, `deb-src`) and suite, in the form of sources.list(5).
pub(super) fn sources(
    mirrors: &Mirrors,
    kinds: &[&str],
    suites: &[&str],
    keyring: &Path,
) -> String {
    let line = |kind: &str, suite: &str| {
        let uri = if suite.ends_with("-security") { &mirrors.security } else { &mirrors.main };
        format!("{kind} [signed-by={}] {uri} {suite} main\n", keyring.display())
    };
    kinds.iter().flat_map(|kind| suites.iter().map(move |suite| line(kind, suite))).collect()
}

/// Returns the configuration that keeps apt's files below `home`.
pub(super) fn own(home: &Path, network: &str) -> String {
    let path = |name: &str| home.join(name).display().to_string();
    let settings = [
        ("Dir::Etc", path("")),
        ("Dir::Etc::sourcelist", path("sources.list")),
        ("Dir::Etc::sourceparts", path("parts")),
        ("Dir::Etc::parts", path("parts")),
        ("Dir::Etc::main", "/dev/null".into()),
        ("Dir::Etc::netrc", format!("{SYSTEM}/auth.conf")),
        ("Dir::Etc::netrcparts", format!("{SYSTEM}/auth.conf.d")),
        ("Dir::State", path("state")),
        ("Dir::State::status", path("status")),
        ("Dir::Cache", path("cache")),
        // The lab's guests are x86, wherever apt runs.
        ("APT::Architecture", "amd64".into()),
        ("APT::Architectures", "amd64".into()),
        // apt's own user may lack access to the cache folder.
        ("APT::Sandbox::User", "".into()),
        ("Acquire::Languages", "none".into()),
        ("Acquire::Retries", "3".into()),
    ];
    let lines = settings.iter().map(|(name, value)| format!("{name} \"{value}\";\n"));
    network.to_owned() + &lines.collect::<String>()
}

/// Returns the system's proxy and certificate settings as `apt-config dump` prints them. apt.conf
/// accepts the same form.
pub(super) fn network() -> String {
    let dump = Command::new("apt-config").arg("dump").output().map(|output| output.stdout);
    network_of(&String::from_utf8_lossy(&dump.unwrap_or_default()))
}

fn network_of(dump: &str) -> String {
    let lines = dump.lines().filter(|line| is_network(line));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Returns whether a line sets a proxy or certificate. A setting applies to all hosts, or names one
/// host before or after the option.
fn is_network(line: &str) -> bool {
    let name = line.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    let Some(option) = name.strip_prefix("acquire::") else { return false };
    let certificate = |https: &str| https.split("::").any(|part| CERTIFICATES.contains(&part));
    option.contains("proxy") || option.strip_prefix("https::").is_some_and(certificate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_signed_and_security_has_its_own_archive() {
        let mirrors = Mirrors { main: "http://m/debian".into(), security: "http://m/sec".into() };
        let suites = ["trixie", "trixie-security"];
        let text = sources(&mirrors, &["deb", "deb-src"], &suites, Path::new("/k.gpg"));
        let expected = "deb [signed-by=/k.gpg] http://m/debian trixie main\n\
                        deb [signed-by=/k.gpg] http://m/sec trixie-security main\n\
                        deb-src [signed-by=/k.gpg] http://m/debian trixie main\n\
                        deb-src [signed-by=/k.gpg] http://m/sec trixie-security main\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_configuration_points_away_from_the_system() {
        let text = own(Path::new("/home/u/apt"), "");
        for name in ["Dir::Etc::sourcelist", "Dir::Etc::sourceparts", "Dir::State", "Dir::Cache"] {
            let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
            assert!(line.is_some_and(|line| line.contains("\"/home/u/apt/")), "{name}: {line:?}");
        }
    }

    #[test]
    fn only_proxies_and_certificates_are_taken_over() {
        let taken = [
            "Acquire::http::Proxy \"http://p:3142\";\n",
            "Acquire::https::Proxy-Auto-Detect \"/x\";\n",
            "Acquire::https::CaInfo \"/ca.pem\";\n",
            "Acquire::https::CAPath::mirror.example \"/certs\";\n",
            "Acquire::https::mirror.example::SslCert \"/c.pem\";\n",
            "Acquire::https::mirror.example::SslKey \"/c.key\";\n",
        ]
        .concat();
        let others = "APT::Install-Recommends \"1\";\nAcquire::Check-Valid-Until \"false\";\n\
                      Acquire::https::Verify-Peer \"false\";\nAcquire::http::SslCert \"/x\";\n";
        assert_eq!(network_of(&[others, &taken].concat()), taken);
    }
}
