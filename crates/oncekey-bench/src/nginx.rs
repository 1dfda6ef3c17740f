//! nginx with a configuration of its own: one server that answers, one that proxies to it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use oncekey::clock::Clock;

use crate::plain;
use crate::process::{Peer, free_ports};

/// What the upstream answers to everything.
pub(crate) const ANSWER: &str = concat!(
    r#"{"id":"ch_5f2c9a7d41e8","object":"charge","amount":4200,"currency":"eur","#,
    r#""status":"succeeded","customer":"cu_8812","captured":true,"#,
    r#""description":"Order 10023","receipt":"re_90817263"}"#
);

/// How long requests may still arrive after a load has ended.
const SETTLE: Duration = Duration::from_secs(10);

/// A running nginx.
pub(crate) struct Nginx {
    peer: Peer,
    program: PathBuf,
    config: PathBuf,
    /// How often we asked for its requests.
    asked: u64,
    /// Answers at once; stands for the application.
    pub(crate) upstream: SocketAddr,
    /// A plain reverse proxy in front of `upstream`.
    pub(crate) proxy: SocketAddr,
}

impl Nginx {
    /// Starts it with its files in `folder`.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let [upstream, proxy] = free_ports::<2>()?;
        let config = folder.join("nginx.conf");
        fs::write(&config, text(folder, upstream, proxy))?;
        let program = program()?;
        let mut command = Command::new(&program);
        command.arg("-p").arg(folder).arg("-c").arg(&config);
        let peer = Peer::start("nginx", &mut command, folder)?;
        let mut nginx = Self { peer, program, config, asked: 0, upstream, proxy };
        nginx.peer.wait_until_ready(proxy, "/")?;
        Ok(nginx)
    }

    /// Requests that all its servers have had so far, without ours that asked. What a load left
    /// under way when it ended is waited for.
    pub(crate) fn requests(&mut self) -> Result<u64> {
        let clock = Clock::real();
        let begun = clock.now();
        let mut last = None;
        while clock.now().since(begun) < SETTLE {
            let answer = plain::get(self.upstream, "/requests-so-far")?;
            self.asked += 1;
            let told = requests(&answer.body).context("nginx does not tell its requests")?;
            let of_others = told.saturating_sub(self.asked);
            if last == Some(of_others) {
                return Ok(of_others);
            }
            last = Some(of_others);
            thread::sleep(Duration::from_millis(50));
        }
        bail!("requests reach the application although the load has ended")
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Ending the master alone would leave its workers.
        let mut stop = Command::new(&self.program);
        stop.arg("-c").arg(&self.config).args(["-s", "stop"]);
        let _ = stop.stdout(Stdio::null()).stderr(Stdio::null()).status();
        self.peer.wait_for_end();
    }
}

fn program() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let found = std::env::split_paths(&path).chain(sbin).map(|folder| folder.join("nginx"));
    match found.into_iter().find(|file| file.is_file()) {
        Some(program) => Ok(program),
        None => bail!("nginx is not installed"),
    }
}

/// The third number of the line that counts connections and requests.
fn requests(status: &str) -> Option<u64> {
    let mut lines = status.lines().skip_while(|line| !line.contains("requests"));
    lines.nth(1)?.split_whitespace().nth(2)?.parse().ok()
}

fn text(folder: &Path, upstream: SocketAddr, proxy: SocketAddr) -> String {
    let folder = folder.display();
    format!(
        "daemon off;
worker_processes 2;
pid {folder}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    default_type application/json;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream application {{
        server {upstream};
        keepalive 256;
        keepalive_requests 1000000000;
        keepalive_timeout 600s;
    }}
    server {{
        listen {upstream} backlog=4096;
        location / {{ return 200 '{ANSWER}'; }}
        location = /requests-so-far {{ stub_status; }}
    }}
    server {{
        listen {proxy} backlog=4096;
        location / {{
            proxy_pass http://application;
            proxy_http_version 1.1;
            proxy_set_header Connection '';
        }}
    }}
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_from_the_status_page() {
        let page = "Active connections: 2 \nserver accepts handled requests\n 16 17 3100 \n\
                    Reading: 0 Writing: 1 Waiting: 1 \n";
        assert_eq!(requests(page), Some(3100));
        assert_eq!(requests("<html>"), None);
    }
}
