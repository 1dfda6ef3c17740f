use super::*;

#[tokio::test]
async fn a1_a_taken_port_is_replaced_unless_it_was_asked_for() {
    let taken = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = taken.local_addr().expect("an address");
    let other = bind(None, address.port()).await.expect("a free port");
    assert_ne!(other.local_addr().expect("an address"), address);
    let refused = bind(Some(address), 1).await.expect_err("it was asked for");
    assert!(refused.to_string().contains(&address.to_string()), "{refused}");
}

#[tokio::test]
async fn a1_the_plan_is_a_configuration_file() {
    let listen = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let admin = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let upstream = SocketAddr::from(([127, 0, 0, 1], 3000));
    let folder = Path::new("/tmp/a \"quoted\" \\ folder");
    let text = configuration(&listen, &admin, upstream, folder).expect("a text");
    let config: toml::Table = text.parse().expect("it is TOML");
    assert_eq!(config["store"]["path"].as_str(), folder.to_str());
    assert_eq!(config["upstream"]["url"].as_str(), Some("http://127.0.0.1:3000"));
    let listen = listen.local_addr().expect("an address").to_string();
    assert_eq!(config["server"]["listen"].as_str(), Some(listen.as_str()));
}

#[tokio::test]
async fn a1_the_folder_is_gone_and_the_gateway_told_to_stop_when_the_demo_ends() {
    let args = DemoArgs::default();
    let (seen, told) = tokio::sync::oneshot::channel();
    let ended = run(args, |plan| async move {
        assert!(plan.data.is_dir());
        let (listen, admin) = (plan.listen.local_addr()?, plan.admin.local_addr()?);
        let _ = seen.send((plan.data.clone(), plan.stop.clone()));
        let finished = tokio::spawn(async { Err(anyhow::anyhow!("the disk is full")) });
        Ok(RunningGateway { listen, admin, finished })
    })
    .await;
    let (folder, stop) = told.await.expect("the gateway was started");
    assert!(!folder.exists());
    assert!(stop.is_cancelled());
    let why = ended.expect_err("a gateway that ends by itself is an error").to_string();
    assert!(why.contains("the disk is full"), "{why}");
}
