/// What an application has written since somebody last looked (`ClientStore.captured`).
public struct CapturedChanges: Sendable, Hashable {
  /// The counter of the newest captured change; 0: there was none yet.
  public var counter: Int64
  /// The groups of the changes after the counter that was asked about.
  public var groups: Set<String>
  /// By default nothing was written after the counter that was asked about.
  public init(counter: Int64, groups: Set<String> = []) {
    self.counter = counter
    self.groups = groups
  }
}
