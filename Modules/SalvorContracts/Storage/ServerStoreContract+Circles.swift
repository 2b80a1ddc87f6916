import SalvorModel
import SalvorStorage

/// Requests that depend on one another, in a circle, as a deferred foreign key allows: the client's order stands, and the
/// circle stands or falls as a whole (semantics 7).
extension ServerStoreContract {
  private static func node(_ id: Value, _ above: Value, _ label: Value = .null) -> Sent {
    .insert("node", ["id": id, "above": above, "label": label])
  }

  /// An update of the key.
  private static func moved(_ from: Value, _ to: Value, _ above: Value, _ label: Value = .null) -> Sent {
    .group([.delete("node", [from]), node(to, above, label)])
  }

  private static func line(_ node: Value, _ number: Value, _ next: Value) -> Sent {
    .insert("line", ["node": node, "number": number, "next": next])
  }

  static let circles: [Case] = [
    on(
      ContractSchemas.circles, "a row that is made and then moved to the key that it references: the client's order",
      rule: "semantics 7, 11.4"
    ) { bench in
      var device = try await bench.device()
      try expectAccepted(try await device.upload(node("k3", "k2"), moved("k3", "k2", "k2")), 2)
      try await bench.expectRows("node", [["k2", "k2", .null]])
      try await device.download()
      try device.expectNothingFed()
      var other = try await bench.device("bert")
      try await other.download()
      try other.expectReplica("node", [["k2", "k2", .null]])
    },
    on(
      ContractSchemas.circles, "a row that is made, changed, and moved to the key that it references",
      rule: "semantics 7, 11.4"
    ) { bench in
      var device = try await bench.device()
      let results = try await device.upload(
        node("k3", "k2"), .update("node", ["k3"], [("label", .null, "a")]), moved("k3", "k2", "k2", "a"),
        .update("node", ["k2"], [("label", "a", "b")]))
      try expectAccepted(results, 4)
      try await bench.expectRows("node", [["k2", "k2", "b"]])
    },
    on(
      ContractSchemas.circles, "rows that reference each other are made, and swap their keys", rule: "semantics 7, 11.4"
    ) { bench in
      var device = try await bench.device()
      let results = try await device.upload(
        node("a", "b", "1"), node("b", "a", "2"), moved("a", "x", "b", "1"), moved("b", "a", "a", "2"),
        moved("x", "b", "b", "1"))
      try expectAccepted(results, 5)
      try await bench.expectRows("node", [["a", "a", "2"], ["b", "b", "1"]])
      // And again, where the server has them.
      let again = try await device.upload(
        moved("a", "x", "b", "2"), moved("b", "a", "x", "1"), moved("x", "b", "a", "2"),
        .update("node", ["a"], [("above", "x", "b")]))
      try expectAccepted(again, 4)
      try await bench.expectRows("node", [["a", "b", "1"], ["b", "a", "2"]])
    },
    on(
      ContractSchemas.circles, "keys of two columns, groups and single requests in one circle",
      rule: "semantics 7, 11.4"
    ) { bench in
      try await bench.write(.insert("node", ["id": "n0"]))
      var device = try await bench.device()
      try expectAccepted(
        try await device.upload(
          line("n0", 1, "n2"),
          .group([.delete("line", ["n0", 1]), line("n0", 2, "n2"), node("n2", "n0")])), 2)
      try await bench.expectRows("line", [["n0", 2, "n2"]])
      let results = try await device.upload(
        node("k3", "k2"), line("k3", 1, "k2"), .update("line", ["k3", 1], [("next", "k2", "n0")]),
        .group([.delete("line", ["k3", 1]), .delete("node", ["k3"]), node("k2", "k2"), line("k2", 1, "n0")]),
        .update("line", ["k2", 1], [("next", "n0", "k2")]))
      try expectAccepted(results, 5)
      try await bench.expectRows("node", [["k2", "k2", .null], ["n0", .null, .null], ["n2", "n0", .null]])
      try await bench.expectRows("line", [["k2", 1, "k2"], ["n0", 2, "n2"]])
    },
    on(
      ContractSchemas.circles,
      "a request goes after the later one that makes the row it references, beside a circle, too",
      rule: "semantics 7"
    ) { bench in
      var device = try await bench.device()
      let results = try await device.upload(
        node("c", "k2"), .update("node", ["c"], [("label", .null, "c")]), node("k3", "k2"), moved("k3", "k2", "k2"),
        .delete("node", ["c"]))
      try expectAccepted(results, 5)
      try await bench.expectRows("node", [["k2", "k2", .null]])
    },
    on(ContractSchemas.circles, "what is refused beside a circle does not tear it", rule: "semantics 7") { bench in
      try await bench.write(.insert("node", ["id": "s", "label": "taken"]))
      var device = try await bench.device()
      // A refused one at every place: wherever a store bisects, the circle is whole.
      for place in 0...4 {
        let old = Value.text("old \(place)"), new = Value.text("new \(place)")
        var sent = [
          node(old, new), .update("node", [old], [("label", .null, .text("\(place)"))]),
          moved(old, new, new, .text("\(place)")), node(.text("child \(place)"), new),
        ]
        let first = device.counter + 1
        sent.insert(node(.text("refused \(place)"), .null, "taken"), at: place)
        let results = try await device.process([device.chunk(sent)], as: SequenceID(from: SystemRandom()))
        // The key change is two changes.
        try expectRefused(results, [first + Int64(place > 2 ? place + 1 : place): .constraint], accepted: 4)
      }
      try expectEqual(try await bench.store.rows(of: "node").count, 11, "the rows")
    },
    on(
      ContractSchemas.circles,
      "a circle stands or falls as a whole: who is to blame is refused, the others are blocked",
      rule: "semantics 7"
    ) { bench in
      try await bench.write(.insert("node", ["id": "s", "label": "taken"]))
      var device = try await bench.device()
      let results = try await device.upload(
        node("a", "b"), node("b", "c", "taken"), node("c", "a"), node("d", .null), node("e", "c"))
      try expectRefused(results, [1: .blocked, 2: .constraint, 3: .blocked, 5: .blocked], accepted: 1)
      for refusal in results.refused where refusal.counter != 2 && refusal.counter != 5 {
        try expectEqual(refusal.blockedBy?.counter, 2, "what request \(refusal.counter) is blocked by")
      }
      try await bench.expectRows("node", [["d", .null, .null], ["s", .null, "taken"]])
      let lacking = try await device.upload(node("f", "g"), .group([node("g", "f"), node("h", "nowhere")]))
      try expectRefused(lacking, [6: .blocked, 7: .missingParent], accepted: 0)
    },
    on(
      ContractSchemas.circles, "a circle in a large upload, which a store may look at in parts",
      rule: "semantics 7, 11.4"
    ) { bench in
      try await bench.write(.insert("node", ["id": "s", "label": "taken"]))
      var device = try await bench.device()
      let long = String(repeating: "name", count: 100)
      var sent = [node("k3", "k2"), node("m1", "m2"), .update("node", ["k3"], [("label", .null, "k")])]
      for other in 0..<300 { sent.append(node(.text("other \(other)"), .null, .text("\(long) \(other)"))) }
      sent += [moved("k3", "k2", "k2", "k"), node("m2", "m1"), node("t1", "t2")]
      for other in 300..<600 { sent.append(node(.text("other \(other)"), .null, .text("\(long) \(other)"))) }
      sent.append(node("t2", "t1", "taken"))
      let results = try await device.process([device.chunk(sent)], as: SequenceID(from: SystemRandom()))
      try expectEqual(
        results.refused.map(\.reason).sorted { $0.rawValue < $1.rawValue }, [.blocked, .constraint], "refused")
      try expectEqual(results.acceptedRequests, 605, "the accepted requests")
      let rows = try await bench.store.rows(of: "node").filter { $0[1] != .null }
      try expectEqual(
        rows, [["k2", "k2", "k"], ["m1", "m2", .null], ["m2", "m1", .null]], "the rows that reference")
    },
    on(
      ContractSchemas.leads, "in a circle a scope may come from a row that is made later, whichever is made first",
      rule: "semantics 7"
    ) { bench in
      var device = try await bench.device(parameters: ["region": ["EU"]])
      func project(_ id: Value, _ region: Value, _ lead: Value) -> Sent {
        .insert("project", ["id": id, "region": region, "lead": lead])
      }
      func task(_ id: Value, _ project: Value) -> Sent {
        .insert("task", ["id": id, "project_id": project, "label": .null])
      }
      try expectAccepted(try await device.upload(project("p1", "EU", "t1"), task("t1", "p1")), 2)
      try expectAccepted(
        try await device.upload(
          task("t2", "p2"), .update("task", ["t2"], [("label", .null, "a")]), project("p2", "EU", "t2")), 3)
      try await bench.expectRows("task", [["t1", "p1", .null], ["t2", "p2", "a"]])
      var outside = try await device.upload(project("p3", "US", "t3"), task("t3", "p3"))
      try expectRefused(outside, [6: .outOfScope, 7: .blocked], accepted: 0)
      outside = try await device.upload(task("t4", "p4"), project("p4", "US", "t4"))
      try expectRefused(outside, [8: .blocked, 9: .outOfScope], accepted: 0)
      try await bench.expectRows("project", [["p1", "EU", "t1"], ["p2", "EU", "t2"]])
    },
  ]
}
