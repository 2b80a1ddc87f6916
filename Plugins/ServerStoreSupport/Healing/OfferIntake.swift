import SalvorModel
import SalvorStorage

/// Which of an upload's offers wait before anything is written (semantics 10): for the operator's consent, or since healing is
/// paused or bounded. One for each upload.
package final class OfferIntake {
  package enum Purpose: Sendable {
    case upload
    /// What has waited is settled: nothing waits for anybody's consent any more.
    case settling
    /// What has waited is refused, since the operator says so.
    case rejecting
    /// What has waited for too long becomes conflict versions.
    case givingUp
  }

  package let purpose: Purpose
  /// Every offer waits for the operator's consent.
  private let reviews: Bool
  private let pace: HealPace
  /// So many offers may pass; nil: any number.
  private let offersMax: Int64?
  private var passed: Set<Int> = []

  /// The table of the request's first change that brings something back only when the server's operator has accepted it.
  func needsConsent(_ request: StagedRequest, _ catalog: Catalog) -> ServerTable? {
    for change in request.changes where change.givesBack {
      guard let table = change.table.map({ catalog.tables[$0] }) else { continue }
      if reviews || change.offer?.isForReview == true || table.table.heal == .review { return table }
    }
    return nil
  }

  package init(
    _ purpose: Purpose = .upload, reviews: Bool = false, pace: HealPace = HealPace(), offersMax: Int64? = nil
  ) {
    self.purpose = purpose
    self.reviews = reviews
    self.pace = pace
    self.offersMax = offersMax
  }

  /// How many offers have passed, where they are bounded.
  package var passedCount: Int64 { Int64(passed.count) }

  /// Nothing makes an offer wait or bounds it, whatever it would change.
  func isFree(_ offer: Offer, _ table: ServerTable) -> Bool {
    switch purpose {
    case .settling: true
    case .rejecting, .givingUp: false
    case .upload:
      !reviews && !offer.isForReview && table.table.heal != .review && !pace.isPaused && offersMax == nil
    }
  }

  /// What a request that would bring something back waits for; nil: nothing.
  func wait(of request: StagedRequest, _ catalog: Catalog) -> WaitingReason? {
    guard purpose == .upload, request.changes.contains(where: \.givesBack) else { return nil }
    if needsConsent(request, catalog) != nil { return .review }
    guard request.mayWait else { return nil }
    if pace.isPaused { return .paused }
    guard let offersMax, !passed.contains(request.ordinal) else { return nil }
    guard Int64(passed.count) < offersMax else { return .rate }
    passed.insert(request.ordinal)
    return nil
  }
}

extension StagedRequest {
  /// The server can hold it: a device makes each offer a request of its own, and of a lost row that a change of its own makes again it has that
  /// change with it.
  var mayWait: Bool { changes.count == 1 && (isOffer || changes[0].givesBack) }
}

extension StagedChange {
  /// It brings a lost row back, with what its device has written since or without. A person's update or delete does not.
  var givesBack: Bool { offer.map { !$0.isVersion && ($0.written.isEmpty || operation == .insert) } ?? false }
  /// Of an ordinary update: the lost version that it was made upon (decision 236).
  var madeUpon: LostVersion? { offer.flatMap { operation == .update && !$0.written.isEmpty ? $0.version : nil } }
}
