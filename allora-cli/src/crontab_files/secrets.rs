//! Passwords on the command line of a line, found by their usual forms. Only the form is shown.

/// The words in the names of variables and options whose values are secrets.
const WORDS: [&str; 6] = ["password", "passwd", "passphrase", "secret", "token", "api_key"];

/// Variables of programs whose values are passwords.
const VARIABLES: [&str; 4] = ["PGPASSWORD", "MYSQL_PWD", "REDISCLI_AUTH", "SSHPASS"];

/// Programs of which `-p` is the option for a password, which follows without a blank.
const CLIENTS: [&str; 7] =
    ["mysql", "mysqldump", "mysqladmin", "mariadb", "mariadb-dump", "mariadb-admin", "sshpass"];

/// The form of the first password that the command seems to have.
pub(super) fn seems_secret(command: &str) -> Option<String> {
    let mut is_client = false;
    for word in command.split([' ', '\t', ';', '|', '&', '(', ')']) {
        let word = word.trim_start_matches(['"', '\'']);
        let program = word.rsplit('/').next().unwrap_or_default();
        is_client |= CLIENTS.contains(&program);
        if is_client && word.len() > 2 && word.starts_with("-p") && is_literal(&word[2..]) {
            return Some("-p…".to_owned());
        }
        if let Some((name, value)) = word.split_once('=')
            && is_secret(name)
            && is_literal(value)
        {
            return Some(format!("{name}=…"));
        }
        if let Some((scheme, rest)) = word.split_once("://")
            && let Some((login, _)) = rest.split('/').next().unwrap_or_default().rsplit_once('@')
            && let Some((_, password)) = login.split_once(':')
            && is_literal(password)
        {
            let scheme: String =
                scheme.chars().rev().take_while(char::is_ascii_alphanumeric).collect();
            return Some(format!("{}://…:…@", scheme.chars().rev().collect::<String>()));
        }
    }
    None
}

/// True for the name of a variable or an option of a secret, which is shown.
fn is_secret(name: &str) -> bool {
    let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let words = name.to_ascii_lowercase().replace('-', "_");
    name.len() <= 40
        && name.chars().all(in_name)
        && (VARIABLES.contains(&name) || WORDS.iter().any(|word| words.ends_with(word)))
}

/// True unless the value comes from elsewhere when the command runs.
fn is_literal(value: &str) -> bool {
    let value = value.trim_matches(['"', '\'']);
    !value.is_empty() && !value.starts_with(['$', '`'])
}

#[cfg(test)]
mod tests {
    use super::seems_secret;

    #[test]
    fn passwords_are_found_by_their_forms_and_not_shown() {
        for (command, form) in [
            ("mysql -u root -pHush db", "-p…"),
            ("/usr/bin/mysqldump -pHush", "-p…"),
            ("PGPASSWORD=Hush psql", "PGPASSWORD=…"),
            ("cd /x && DB_PASSWORD='Hush' run", "DB_PASSWORD=…"),
            ("backup --password=Hush", "--password=…"),
            ("curl --api-key=Hush", "--api-key=…"),
            ("curl https://u:Hush@host/", "https://…:…@"),
            ("sh -c 'x --url=redis://:Hush@host'", "redis://…:…@"),
        ] {
            assert_eq!(seems_secret(command).as_deref(), Some(form), "{command}");
        }
    }

    #[test]
    fn what_is_no_password_is_left_alone() {
        for command in [
            "mkdir -p /srv/x",
            "mysql -p",
            "PGPASSWORD=$PW psql",
            "PGPASSWORD=\"$(cat /etc/pw)\" psql",
            "curl https://host/a:b@c",
            "echo user@host",
            "x --token-file=/etc/token",
            "",
        ] {
            assert_eq!(seems_secret(command), None, "{command}");
        }
    }
}
