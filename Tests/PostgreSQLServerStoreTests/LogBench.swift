#if PostgreSQL
  import Foundation
  import SalvorModel
  import Testing

  @testable import PostgreSQLServerStore

  /// What capture and sealing cost the writers, as ratios in one run; only with SALVOR_MEASURE=1.
  @Suite(
    .enabled(if: PrivateCluster.isThere && ProcessInfo.processInfo.environment["SALVOR_MEASURE"] == "1"), .serialized)
  struct LogBench {
    /// Rows a second that eight writers insert, and the longest sealing in milliseconds.
    private func rate(_ rows: Int, captured: Bool, sealed: Bool, beside long: Bool, seconds: Double) throws -> (
      Double, Double
    ) {
      let desk = try LogDesk()
      let setup = try desk.connection()
      if !captured {
        for event in ChangeCapture.events {
          try setup.execute("DROP TRIGGER \"\(ChangeCapture.trigger(1, event))\" ON note")
        }
      }
      let holder = try desk.connection()
      if long { try holder.execute("BEGIN; INSERT INTO note (id) VALUES ('long'); ") }
      let total = Mutex(0)
      let longest = Mutex(0.0)
      let end = ContinuousClock.now + .seconds(seconds)
      var works: [@Sendable () throws -> Void] = (0..<8).map { writer in
        {
          let connection = try desk.connection()
          var next = 0
          while ContinuousClock.now < end {
            try connection.run(
              "INSERT INTO note (id, body) SELECT 'w\(writer)-' || g, 'some text of a usual length' FROM generate_series(?1::bigint, ?2::bigint) g",
              .integer(Int64(next)), .integer(Int64(next + rows - 1)))
            next += rows
            total.withLock { $0 += rows }
          }
        }
      }
      if sealed {
        works.append {
          let connection = try desk.connection()
          while ContinuousClock.now < end {
            let began = ContinuousClock.now
            try desk.seal(connection)
            let took = (ContinuousClock.now - began) / .milliseconds(1)
            longest.withLock { $0 = max($0, took) }
            Thread.sleep(forTimeInterval: 0.01)
          }
        }
      }
      try onThreads(works)
      if long { try holder.execute("COMMIT") }
      return (Double(total.withLock { $0 }) / seconds, longest.withLock { $0 })
    }

    @Test("what capture and sealing cost eight writers", arguments: [100, 1])
    func writers(_ rows: Int) throws {
      for round in 1...3 {
        let plain = try rate(rows, captured: false, sealed: false, beside: false, seconds: 3)
        let captured = try rate(rows, captured: true, sealed: false, beside: false, seconds: 3)
        let sealed = try rate(rows, captured: true, sealed: true, beside: false, seconds: 3)
        print(
          "rows a transaction \(rows), round \(round): plain \(Int(plain.0))/s, captured \(captured.0 / plain.0), "
            + "sealed \(sealed.0 / plain.0), longest sealing \(Int(sealed.1)) ms")
      }
    }

    @Test("what a transaction that stays open costs sealing")
    func longTransaction() throws {
      for round in 1...2 {
        let alone = try rate(100, captured: true, sealed: true, beside: false, seconds: 15)
        let beside = try rate(100, captured: true, sealed: true, beside: true, seconds: 15)
        print(
          "round \(round): beside an open transaction \(beside.0 / alone.0), longest sealing \(Int(alone.1)) and \(Int(beside.1)) ms"
        )
      }
    }
  }
#endif
