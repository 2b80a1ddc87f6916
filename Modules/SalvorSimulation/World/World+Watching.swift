import SalvorClientEngine
import SalvorModel

extension World {
  /// `salvor sync --watch`: what is written on either side meanwhile goes its way by itself.
  ///
  /// - Parameter groups: nil: all.
  func watch(
    _ device: SimulatedDevice, _ groups: Set<String>?, _ faults: NetworkFaults, _ turns: [Step.Turn]
  ) async throws {
    network.setFaults(faults, of: device.name, generator.derived(1))
    let client = try device.running()
    // A request that the server has taken, and whose store is closed then.
    let ending: Set<ErrorCode> = turns.contains(where: \.restartsServer) ? [.storage] : []
    let isFaulty = !faults.isSound || turns.contains(where: \.restartsServer)
    let watching = Task {
      await client.watch(
        groups: groups,
        onSync: { report in
          self.judge(
            self.keepToken(device, report), device, isPart: groups != nil, isFaulty: isFaulty,
            allowing: ending)
        })
    }
    for turn in turns {
      try await device.clock.sleep(milliseconds: Int64(turn.seconds) * 1000)
      if turn.restartsServer {
        await stopServer()
        try await device.clock.sleep(milliseconds: Int64(generator.pick([1, 900, 100_000]) ?? 1))
        try await startServer()
      }
      if try device.isMade() { try await write(device, turn.statements) }
      if !turn.program.isEmpty { try program(turn.program) }
      try lookAtServer()
    }
    // Groups of which the server does not tell are synchronized once a minute.
    try await device.clock.sleep(milliseconds: 70_000)
    watching.cancel()
    if let report = await watching.value { coverage.meet("watch ended with exit code \(report.exitCode)") }
    network.setFaults(nil, of: device.name)
  }
}
