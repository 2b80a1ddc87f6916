import SalvorClientEngine
import SalvorContracts
import SalvorModel

extension World {
  /// `salvor sync --watch`: what is written on either side meanwhile goes its way by itself.
  ///
  /// - Parameter groups: nil: all.
  func watch(
    _ device: SimulatedDevice, _ groups: Set<String>?, _ faults: NetworkFaults, _ turns: [Step.Turn]
  ) async throws {
    network.setFaults(faults, of: device.name, generator.derived(1))
    // A request that the server has taken, and whose store is closed then.
    let ending: Set<ErrorCode> = turns.contains(where: \.restartsServer) ? [.storage] : []
    let isFaulty = !faults.isSound || turns.contains(where: \.restartsServer)
    func begin(_ client: SalvorClient, _ strikes: Strikes?) -> Task<SyncReport?, Never> {
      Task {
        await client.watch(
          groups: groups,
          onSync: { report in
            // Nobody hears the last words of a process that was killed.
            if strikes?.hasStruck == true { return }
            self.judge(
              self.keepToken(device, report), device, isPart: groups != nil, isFaulty: isFaulty, allowing: ending)
          })
      }
    }
    let isKilled = turns.contains { $0.kill != nil }
    if isKilled { await device.endProcess() }
    var strikes = isKilled ? Strikes() : nil
    var client = isKilled ? try device.makeClient(strikes) : try device.running()
    var watching = begin(client, strikes)
    for turn in turns {
      if let call = turn.kill { strikes?.arm(.kill(call)) }
      try await device.clock.sleep(milliseconds: Int64(turn.seconds) * 1000)
      if turn.restartsServer {
        await stopServer()
        try await device.clock.sleep(milliseconds: Int64(generator.pick([1, 900, 100_000]) ?? 1))
        try await startServer()
      }
      if try device.isMade() { try await write(device, turn.statements) }
      if !turn.program.isEmpty { try program(turn.program) }
      try lookAtServer()
      guard turn.kill != nil else { continue }
      try await device.clock.sleep(milliseconds: 70_000)
      watching.cancel()
      _ = await watching.value
      await client.close()
      coverage.meet("killed while it watches\(strikes?.hasStruck == true ? "" : ", missed")")
      strikes = Strikes()
      client = try device.makeClient(strikes)
      watching = begin(client, strikes)
    }
    // Groups of which the server does not tell are synchronized once a minute.
    try await device.clock.sleep(milliseconds: 70_000)
    watching.cancel()
    if let report = await watching.value { coverage.meet("watch ended with exit code \(report.exitCode)") }
    if isKilled { await client.close() }
    network.setFaults(nil, of: device.name)
  }
}
