/// What a request was before its device dropped columns or tables that it wrote: a server that has settled it then knows it by that.
public struct FormerContent: Sendable, Hashable {
  /// The counter of its first change; with the request's stamp it is the ID that the request had.
  public var first: Int64
  /// Its content, as servers remember it (docs/reference/protocol.md, *What a request was*).
  public var content: UInt32

  /// A request has at most so many: a device keeps the latest.
  public static let countMax = 16

  /// Takes the members as they are.
  public init(first: Int64, content: UInt32) {
    self.first = first
    self.content = content
  }
}
