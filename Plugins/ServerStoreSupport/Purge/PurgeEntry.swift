import ContentHash
import SalvorModel
import SalvorStorage
import SalvorWire

/// One act of the ledger. No key and no value stands in it: `hash` is the HMAC-SHA-256 of table and key under the ledger's key.
package struct PurgeEntry: Hashable {
  package enum Act: String { case purge, release }
  var act: Act
  var hash: String
  /// Milliseconds since 1970.
  var time: Int64
  /// HMAC-SHA-256 of the seal before it and this act: a line that is missing or altered shows.
  package var seal: String

  package init(_ act: Act, _ hash: String, time: Int64, after before: String, key: [UInt8]) {
    self.act = act
    self.hash = hash
    self.time = time
    seal = Self.seal(act, hash, time, before, key)
  }

  package init?(_ json: JSONValue) {
    guard let act = json["act"]?.string.flatMap({ Act(rawValue: $0) }), let hash = json["hash"]?.string,
      let time = json["time"]?.integer, let seal = json["seal"]?.string
    else { return nil }
    self.act = act
    self.hash = hash
    self.time = time
    self.seal = seal
  }

  package func follows(_ before: String, key: [UInt8]) -> Bool { seal == Self.seal(act, hash, time, before, key) }

  private static func seal(_ act: Act, _ hash: String, _ time: Int64, _ before: String, _ key: [UInt8]) -> String {
    hexadecimal(hmacSHA256(Array("\(before) \(act.rawValue) \(hash) \(time)".utf8), key: key))
  }

  package var json: JSONValue {
    ["act": .string(act.rawValue), "hash": .string(hash), "time": .integer(time), "seal": .string(seal)]
  }
}

/// The acts of the ledger that ended, the oldest ones: nobody can bring back what they erased.
package struct PurgeEnd: Sendable, Hashable {
  /// How many.
  package var count: Int64 = 0
  /// Of the last of them: the next act follows it. Empty where none ended.
  package var seal = ""

  package init() {}

  package init(count: Int64, seal: String) {
    self.count = count
    self.seal = seal
  }
}
