import SalvorClientEngine
import SalvorModel

extension World {
  /// `salvor sync --watch`: what is written on either side meanwhile goes its way by itself.
  func watch(_ device: SimulatedDevice, _ faults: NetworkFaults, _ turns: [Step.Turn]) async throws {
    network.setFaults(faults, of: device.name, generator.derived(1))
    let client = try device.running()
    let watching = Task {
      await client.watch(onSync: { report in
        self.judge(self.keepToken(device, report), device, isFaulty: !faults.isSound)
      })
    }
    for turn in turns {
      try await device.clock.sleep(milliseconds: Int64(turn.seconds) * 1000)
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
