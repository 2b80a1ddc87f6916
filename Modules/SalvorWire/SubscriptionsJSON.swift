import SalvorModel

/// `{"TARGET":[{"PARAMETER":VALUE}]}`, in a fixed order: equal subscriptions give equal text.
extension ResolvedSubscriptions {
  /// Over all targets of a device.
  public static let countMax = 10_000

  /// As a message has them. Targets and parameters come in the order of their names, alternatives in the order of their
  /// text.
  public var json: JSONValue {
    .object(
      targets.sorted { $0.key < $1.key }.map { target, alternatives in
        let objects = alternatives.map { values in
          JSONValue.object(values.sorted { $0.key < $1.key }.map { .init($0.key, JSONValue($0.value)) })
        }
        return .init(target, .array(objects.sorted { $0.text < $1.text }))
      })
  }

  /// Reads subscriptions. Throws `malformed` where the shape is another one, and `too-large` where targets and
  /// alternatives together are more than `countMax`.
  public init(_ json: JSONValue) throws(SalvorError) {
    self.init()
    guard let members = json.members else { throw Self.malformed }
    var count = 0
    for member in members {
      guard let list = member.value.array else { throw Self.malformed }
      count += list.count + 1
      guard count <= Self.countMax else {
        throw SalvorError(
          .tooLarge, "A device has at most \(Self.countMax) subscriptions: take some back (salvor unsubscribe).")
      }
      var alternatives: Set<[String: Value]> = []
      for entry in list {
        guard let parameters = entry.members else { throw Self.malformed }
        var values: [String: Value] = [:]
        for parameter in parameters {
          guard let value = parameter.value.rowValue else { throw Self.malformed }
          values[parameter.key] = value
        }
        alternatives.insert(values)
      }
      targets[member.key] = alternatives
    }
  }

  private static var malformed: SalvorError {
    SalvorError(.malformed, "Subscriptions must be {\"TARGET\":[{\"PARAMETER\":VALUE}]}.")
  }
}
