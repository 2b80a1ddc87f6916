import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Downloads that are applied while they arrive: see `ApplyAhead`, and `Arrival` for large ones.
extension SQLiteClientStore {
  func giveUpAhead() throws {
    guard let ahead else { return }
    self.ahead = nil
    do { arrival = try ahead.giveUp() } catch {
      lostDownload = ahead.download
      throw error
    }
  }

  /// Gives the write lock back when its time is over, also where no page comes.
  func watchAhead() {
    aheadNumber += 1
    let number = aheadNumber
    Task { [weak self, clock] in
      try? await clock.sleep(milliseconds: ApplyAhead.lockMilliseconds)
      await self?.giveUpAhead(number)
    }
  }

  private func giveUpAhead(_ number: Int) { if number == aheadNumber { try? giveUpAhead() } }

  /// Nil: nothing was applied ahead, or what was could not stand as it is; then it is staged.
  func finishAhead(_ end: DownloadEnd) throws -> ApplyReport? {
    guard let ahead else { return nil }
    let context = try current()
    do {
      let report = try ahead.finish(Set(end.groups.map(\.name)))
      let groups = try context.connection.groupStates(context.schema.groups)
      try move(end, comingWhole(end, groups, ahead.tablesThatComeWhole, context), context)
      try context.connection.execute("COMMIT")
      self.ahead = nil
      uploadPlan = nil
      return report
    } catch {
      try giveUpAhead()
      return nil
    }
  }

  // MARK: Arriving

  /// Takes a page of a download whose rows arrive in twins. False: they do not, or not any more.
  func arrives(_ chunk: StagedChunk, _ isPlain: Bool, _ context: StoreContext) throws -> Bool {
    guard ahead == nil, try context.connection.text(.stagedDownload) == chunk.download,
      try context.connection.state(.arriving) != nil
    else { return false }
    if arrival?.download != chunk.download || arrival?.context !== context { arrival = nil }
    if isPlain, let arrival = try arrival ?? Arrival.resume(context, chunk.download) {
      self.arrival = arrival
      do {
        try arrival.take(chunk)
        return true
      } catch {
        // As text it finds out what is the matter.
        self.arrival = nil
      }
    }
    try fold(context)
    return false
  }

  /// What arrived in twins is staged as text.
  func fold(_ context: StoreContext) throws {
    arrival = nil
    guard try context.connection.state(.arriving) != nil else { return }
    try Arrival.fold(context)
    if try context.connection.text(.stagedDownload) == nil {
      throw SalvorError(.storage, "A table has changed while its first rows arrived. Sync again.")
    }
  }

  func applyArrived(_ arrived: Arrived, _ end: DownloadEnd, _ context: StoreContext) throws -> ApplyReport {
    try (arrival?.turns ?? WriteTurns(context.connection, context.clock)).wait()
    let report = try applyStaged(end, arrived, context)
    arrival = nil
    // The exchange counts as a change of the schema, and is none that anybody has to look at.
    checkedSchema = try context.connection.schemaVersion()
    openedAs = try Opened(context.connection)
    return report
  }
}
