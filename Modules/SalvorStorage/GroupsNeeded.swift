/// What `ClientStore.apply` throws where a download takes a row that rows of another synchronized group reference: what became of
/// those, their own group's download says, and both are applied together (semantics 2). Nothing was changed.
public struct GroupsNeeded: Error, Sendable, Hashable {
  /// The groups that this download is to have as well. Never empty.
  public let groups: Set<String>

  /// - Parameter groups: by name.
  public init(_ groups: Set<String>) { self.groups = groups }
}
