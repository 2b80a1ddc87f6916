import SalvorModel
import SalvorStorage

extension UploadProcessor {
  /// Settled under an earlier upload, whatever its remote ID: never applied twice (semantics 5).
  func isSettled(_ request: StagedRequest) throws -> Bool {
    switch try settled.outcome(of: request) {
    case nil: return false
    case .accepted:
      tally.accepted += 1
      // One that waited here may have been settled so since: its device remembers what it sent, as of every conflict version.
      if try ConflictBook(rows).isKept(request.id) { tally.noteKept(request) }
      // The sender shows its change again, on whatever base it has now; what the row became since comes with this answer.
      for change in request.changes {
        if let table = change.table { tally.echo.feed(table, change.key, change.hash) }
      }
    case .refused(let refusal):
      var reader = StepReader(rows, over: tally.refusedRows)
      tally.refuse(RefusedRequest(request, repeating: refusal, try reader.steps(of: request)))
    }
    return true
  }
}

extension UploadProcessor {
  /// What is brought back counts for the restores that can have lost it; what a person made upon a lost version brings nothing.
  func note(offer: Offer?, _ operation: Operation) {
    guard let offer, offer.written.isEmpty || operation == .insert else { return }
    let version = offer.version
    offeredVersion = (version.incarnation, version.number)
    if offer.isVersion {
      kept[version.incarnation, default: []].insert(version.number)
    } else {
      offered[version.incarnation, default: []].insert(version.number)
    }
  }
}
