use super::*;

#[test]
fn a1_a_taken_port_is_replaced_unless_it_was_asked_for() {
    let taken = Probe::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    assert_eq!(choose(None, address.port()).port(), 0, "any free one");
    assert_eq!(choose(Some(address), 1), address);
}

#[test]
fn a1_the_settings_put_the_gateway_in_front_of_the_shop() {
    let shop = SocketAddr::from(([127, 0, 0, 1], 3000));
    let folder = Path::new("/tmp/a \"quoted\" \\ folder");
    let loaded = configuration(&DemoArgs::default(), shop, folder).expect("a configuration");
    let url = loaded.config.upstream_url().expect("an upstream");
    assert_eq!(url.authority(), "127.0.0.1:3000");
    assert_eq!(loaded.config.store.path, folder);
    assert_eq!(loaded.config.upstream.timeout, std::time::Duration::from_secs(2));
}
