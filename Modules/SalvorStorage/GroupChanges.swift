import SalvorModel

/// Which synchronization groups have changed on the server since a commit (`ServerStore.changedGroups`).
public struct GroupChanges: Sendable, Hashable {
  /// The newest commit.
  public var head: Commit
  /// Groups without a change are left out. Nil: since when is not known here (any more), and every group may have changed.
  public var changes: [GroupChange]?

  /// All parts given.
  public init(head: Commit, changes: [GroupChange]?) {
    self.head = head
    self.changes = changes
  }
}

/// The newest commits that changed rows of a group: by anyone, and by anyone else than its author.
public struct GroupChange: Sendable, Hashable {
  /// As the schema names it.
  public var group: String
  /// The number of the newest commit.
  public private(set) var newest: Int64
  /// Whose upload it was; nil: another program's.
  public private(set) var author: RemoteID?
  /// The number of the newest commit that is not of `author`; 0: there is none.
  public private(set) var newestOfOthers: Int64

  /// No commit is known: each is told by `add`.
  public init(group: String) {
    self.group = group
    newest = 0
    newestOfOthers = 0
  }

  /// Takes a commit into account, in any order.
  public mutating func add(_ number: Int64, by remote: RemoteID?) {
    let isOfAuthor = newest > 0 && remote == author
    if number > newest {
      if !isOfAuthor { newestOfOthers = newest }
      newest = number
      author = remote
    } else if !isOfAuthor {
      newestOfOthers = max(newestOfOthers, number)
    }
  }

  /// The number of the newest commit that is news to `remote`: it knows its own uploads. 0: there is none.
  public func newest(besides remote: RemoteID?) -> Int64 {
    author != nil && author == remote ? newestOfOthers : newest
  }
}
