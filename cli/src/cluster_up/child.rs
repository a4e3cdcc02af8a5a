//! A task of the cluster as a child process.

use super::Up;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};

/// A task that was started. It ends when the pipe to its standard input is closed, so at the latest with this process.
pub struct Child {
    /// The task's job.
    pub job: &'static str,
    /// Its index.
    pub task: u32,
    port: u16,
    process: std::process::Child,
    stdin: Option<ChildStdin>,
    /// How it has ended, once it has.
    pub ending: Option<Ending>,
}

/// How a task has ended.
pub struct Ending {
    /// In words, such as `exited with status 0`.
    pub words: String,
    /// Whether that was with status 0.
    pub clean: bool,
}

impl Child {
    /// Starts a task.
    ///
    /// # Errors
    /// If the process or its log cannot be made.
    pub fn start(job: &'static str, task: u32, port: u16, cluster: &str, up: &Up) -> Result<Child> {
        let program = std::env::current_exe().context("the path of this program is unknown")?;
        let mut command = Command::new(program);
        command
            .args(["serve", "--exit-with-stdin", "--job", job, "--task", &task.to_string(), "--cluster", cluster])
            .args(["--grace", &up.grace.to_string()])
            .args(&up.serve_flags)
            .env_remove("TF_CONFIG")
            .stdin(Stdio::piped())
            // What the terminal sends to the foreground is for this process, which then ends its tasks in order.
            .process_group(0);
        match &up.log_dir {
            Some(directory) => {
                let path = directory.join(format!("{job}-{task}.log"));
                let log = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
                command.stdout(log.try_clone()?).stderr(log);
            }
            None => {
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
            }
        }
        let mut process = command.spawn().with_context(|| format!("cannot start {job}:{task}"))?;
        let prefix = format!("{job}:{task} | ");
        pass_on(process.stdout.take(), prefix.clone());
        pass_on(process.stderr.take(), prefix);
        Ok(Child { job, task, port, stdin: process.stdin.take(), process, ending: None })
    }

    /// The task's short name, such as `ps:0`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.job, self.task)
    }

    /// Where clients reach it.
    pub fn target(&self) -> String {
        format!("grpc://{}", self.address())
    }

    /// Host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The number of its process.
    pub fn process(&self) -> u32 {
        self.process.id()
    }

    /// Whether the task has ended since the last look.
    pub fn look(&mut self) -> bool {
        if self.ending.is_some() {
            return false;
        }
        self.ending = match self.process.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(Ending { words: in_words(status), clean: status.success() }),
            Err(error) => Some(Ending { words: format!("cannot be waited for: {error}"), clean: false }),
        };
        self.ending.is_some()
    }

    /// Has the task end in order.
    pub fn ask_to_end(&mut self) {
        self.stdin = None;
    }

    /// Ends the task at once.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill().with_context(|| format!("cannot end {}", self.name()))
    }

    /// How it has failed, if it has, in words.
    pub fn failure(&self) -> Option<String> {
        match &self.ending {
            Some(Ending { clean: true, .. }) => None,
            Some(Ending { words, .. }) => Some(format!("{} {words}", self.name())),
            None => Some(format!("{} goes on", self.name())),
        }
    }
}

/// How a process has ended.
fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

/// Writes what a task writes to standard error, each line with a prefix, until it ends.
fn pass_on(from: Option<impl Read + Send + 'static>, prefix: String) {
    let Some(from) = from else { return };
    std::thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut line = Vec::new();
        loop {
            line.clear();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            if !line.ends_with(b"\n") {
                line.push(b'\n');
            }
            // In one piece, so that lines of several tasks do not mix. A task goes on when nobody reads.
            let _ = std::io::stderr().write_all(&[prefix.as_bytes(), &line].concat());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_in_words() {
        assert_eq!(in_words(ExitStatus::from_raw(3 << 8)), "exited with status 3");
        assert_eq!(in_words(ExitStatus::from_raw(9)), "was killed by signal 9");
    }
}
