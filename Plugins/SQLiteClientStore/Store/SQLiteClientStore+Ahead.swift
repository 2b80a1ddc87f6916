import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Downloads that are applied while they arrive: see `ApplyAhead`.
extension SQLiteClientStore {
  func giveUpAhead() throws {
    guard let ahead else { return }
    self.ahead = nil
    do { try ahead.giveUp() } catch {
      lostDownload = ahead.download
      throw error
    }
  }

  /// Gives the write lock back where no page comes any more.
  func watchAhead() {
    aheadNumber += 1
    let number = aheadNumber
    Task { [weak self, clock] in
      var pages = -1
      while let now = await self?.pagesAhead(number), now != pages {
        pages = now
        try? await clock.sleep(milliseconds: ApplyAhead.idleMilliseconds)
      }
      await self?.giveUpAhead(number)
    }
  }

  /// Nil: it is not under way any more.
  private func pagesAhead(_ number: Int) -> Int? { number == aheadNumber ? ahead?.pages : nil }

  private func giveUpAhead(_ number: Int) { if number == aheadNumber { try? giveUpAhead() } }

  /// Nil: nothing was applied ahead, or what was could not stand as it is; then it is staged.
  func finishAhead(_ end: DownloadEnd) throws -> ApplyReport? {
    guard let ahead else { return nil }
    let context = try current()
    do {
      let report = try ahead.finish(Set(end.groups.map(\.name)))
      let groups = try context.connection.groupStates(context.schema.groups)
      try move(end, comingWhole(end, groups, [], context), context)
      try context.connection.execute("COMMIT")
      self.ahead = nil
      uploadPlan = nil
      return report
    } catch {
      try giveUpAhead()
      return nil
    }
  }
}
