import SalvorModel
import SalvorStorage

/// New bases that were read: of a download, or by a recovery's rules.
protocol NewBases: AnyObject {
  var rows: WorkingRows { get }
  var isRecovery: Bool { get }
  /// Tables that a recovery rebuilt. Any of their rows may be missing now, as a parent of other rows.
  var rebuilt: Set<String> { get }
  /// Gives the rows in work their bases.
  func takeBases() throws
  /// A client-only row goes with its parent: a recovery's report names it.
  func clientRowGoes(_ table: String, _ key: Key) throws
}

/// Requests that a recovery adds, and that no application wrote.
protocol AddedRequests: AnyObject {
  func add(to rows: WorkingRows) throws
}

/// What changes at once: bases, requests that leave, requests that are added. Every entry point of the store that changes
/// either builds one, and `StoreContext.settle` does what follows from it.
struct Move {
  /// The new bases of rows with requests, and of rows that something is in the way of; clean rows were written as they came.
  enum Bases {
    case none
    case download(any NewBases)
  }

  /// Failed requests that are sent again, each with the waiting ones on its rows, as one.
  enum Joins {
    case none
    /// Those of which a row was edited since.
    case edited
    /// Requests that came back, of which a row was edited since they were made.
    case editedOf([RequestRange])
    /// These, where they are failed still, and those of their rows.
    case these([RequestRange])
    /// Every row's requests that wait, where a person has asked for it.
    case waiting
  }

  /// What became of the upload under way.
  enum Upload {
    case none
    case settled(UploadOutcome)
    /// The server did not process it: its requests wait again, with their IDs.
    case takenBack
  }

  /// What becomes of requests that wait for others.
  enum Holding {
    case none
    /// Those that nothing holds any more are released.
    case release
    /// And what depends on a failed one is blocked: an upload is going to be chosen.
    case choose
  }

  var bases = Bases.none
  var upload = Upload.none
  var joins = Joins.none
  /// Displaced requests that a person wants back, though a younger change of their row was accepted since.
  var asked: [RequestRange] = []
  /// Requests that leave for good: of the log, and of the archive. In order.
  var removed: [RequestRange] = []
  var removedArchived: [RequestRange] = []
  /// Requests that leave, and stay in their rows as part of the bases. In order.
  var becomingBases: [RequestRange] = []
  /// Every outstanding request leaves for the archive, as a kept entry with this reason; nil: none does for that.
  var discarded: (reason: String, message: String)?
  /// Changes after this counter are kept in the archive: a backup from before them is put back.
  var keptAfter: Int64?
  /// Tables, by number, that have no deleted column from here on: their marked rows go.
  var unmarked: Set<Int64> = []
  /// Rows that a restored server lost: requests that offer them again are added.
  var offers: (any AddedRequests)?
  var holding = Holding.none
  /// Between an acknowledgement and the download that follows it bases may reference rows that are not there.
  var basesMayBreak = true
  /// Rows of the server's that cannot stand side by side, since the download that says which of them is there did not come yet: one is left out
  /// until then. False: they are an error.
  var leavesOutdatedOut = false
  /// Displaced requests return where they can.
  var returnsDisplaced = true
  /// Client-only rows follow the rows that they reference; false: those are going to be made anew, and are there again then.
  var movesClientRows = true
}

/// What a move has done, net: what was displaced and returned within it is neither.
struct Settlement {
  var displaced: [RequestRange] = []
  var returned: [RequestRange] = []
  var upload = SettleReport()
  /// Rows of the server's without the rows that they reference.
  var leftOut: [LeftOutRow] = []
  var forced: [ForcedDelete] = []
  var notices: [String] { leftOut.notices + ForcedDelete.notices(of: forced) }
  /// A row came that one which was left out before may reference.
  var isToCompare = false
  /// What requests were joined into, by their old IDs; nil: there was nothing left to send.
  var joined: [RequestID: RequestID?] = [:]
  /// How many requests there are less by joining.
  var joinedCount = 0
}
