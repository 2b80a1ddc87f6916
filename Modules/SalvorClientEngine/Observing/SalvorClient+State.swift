import SalvorModel

extension SalvorClient {
  /// Where things stand now: what an application shows beside its title.
  public nonisolated var state: SyncState { board.present }

  /// The present state, and then each one that follows; a reader that is slow gets the newest. It ends with `close`.
  ///
  ///     for await state in client.states { status.text = "\\(state)" }
  public nonisolated var states: AsyncStream<SyncState> { board.subscribe() }

  /// The network costs money or is slow: where a call names no groups, those of `Configuration.meteredGroups` alone are
  /// synchronized, by `watch` as well, and the others when the network is another one again.
  public nonisolated var isNetworkMetered: Bool {
    get { circumstances.isMetered }
    set { circumstances.isMetered = newValue }
  }
}
