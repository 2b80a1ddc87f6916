import SalvorModel
import SalvorTransport

/// An authentication module with what the contract must know of its set-up.
public struct AuthenticationSubject: Sendable {
  /// The module under test. Each case may ask it from many tasks at once.
  public var authentication: any Authentication
  /// Credentials as a client's configuration has them, and who they stand for.
  public var known: [(credentials: [String: String], principal: Principal)]
  /// Headers that must not get in, each for another reason; none of them local-only reasons.
  public var refused: [[String: String]]
  /// Whether callers from other machines are served.
  public var servesRemotePeers: Bool

  /// At least one of `known` is needed: the cases take them in turn.
  public init(
    _ authentication: any Authentication, known: [(credentials: [String: String], principal: Principal)],
    refused: [[String: String]], servesRemotePeers: Bool
  ) {
    self.authentication = authentication
    self.known = known
    self.refused = refused
    self.servesRemotePeers = servesRemotePeers
  }
}

/// What every authentication keeps (Exchange.swift, `Authentication`).
public enum AuthenticationContract {
  /// One rule each. The cases make requests by themselves: the module is not started, and no network is used.
  public static let cases: [ContractCase<AuthenticationSubject>] = [
    ContractCase("a client's headers bring its principal", rule: "Exchange.swift, Authentication") { subject in
      for (credentials, principal) in subject.known {
        let headers = try subject.authentication.headers(credentials: credentials)
        let found = try await subject.authentication.authenticate(request(headers))
        try expectEqual(found, principal, "the principal of good credentials")
      }
    },
    ContractCase("headers are such as HTTP carries", rule: "Exchange.swift, TransportRequest") { subject in
      for (credentials, _) in subject.known {
        for (name, value) in try subject.authentication.headers(credentials: credentials) {
          try expect(!name.isEmpty && name == name.lowercased(), "a header's name is not lower-case")
          try expect(value.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7f }, "a header's value holds control characters")
        }
      }
    },
    ContractCase("other headers make no difference", rule: "Exchange.swift, Authentication") { subject in
      for (credentials, principal) in subject.known {
        var headers = try subject.authentication.headers(credentials: credentials)
        headers["x-forwarded-for"] = "127.0.0.1"
        headers["x-forwarded-user"] = "administrator"
        let found = try await subject.authentication.authenticate(request(headers))
        try expectEqual(found, principal, "the principal beside headers of a proxy")
      }
    },
    ContractCase("nobody is let in without a header", rule: "Exchange.swift, authenticate") { subject in
      try await expectError(.unauthenticated, "a request without headers") {
        _ = try await subject.authentication.authenticate(request([:]))
      }
    },
    ContractCase("what is wrong is refused", rule: "Exchange.swift, authenticate") { subject in
      for headers in subject.refused {
        try await expectError(.unauthenticated, "a request with wrong headers") {
          _ = try await subject.authentication.authenticate(request(headers))
        }
      }
    },
    ContractCase("a refusal does not say which part was wrong", rule: "Exchange.swift, authenticate") { subject in
      var messages: Set<String> = []
      for headers in subject.refused + [[:]] {
        let error = try await expectError(nil, "a request with wrong headers") {
          _ = try await subject.authentication.authenticate(request(headers))
        }
        messages.insert(error.message)
        for value in headers.values where value.utf8.count > 3 {
          try expect(!error.message.contains(value), "the refusal repeats a header's value")
          try expect(!error.context.values.contains(value), "the refusal's context repeats a header's value")
        }
      }
      try expectEqual(messages.count, 1, "the number of different refusals")
    },
    ContractCase("callers from other machines are served as declared", rule: "interfaces.md, authentication") {
      subject in
      for (credentials, principal) in subject.known {
        let headers = try subject.authentication.headers(credentials: credentials)
        if subject.servesRemotePeers {
          let found = try await subject.authentication.authenticate(request(headers, local: false))
          try expectEqual(found, principal, "the principal of a caller from another machine")
        } else {
          try await expectError(.unauthenticated, "a caller from another machine") {
            _ = try await subject.authentication.authenticate(request(headers, local: false))
          }
        }
      }
    },
    ContractCase("credentials that lack something are refused by the client", rule: "Exchange.swift, headers") {
      subject in
      try await expectError(.configuration, "headers of empty credentials") {
        _ = try subject.authentication.headers(credentials: [:])
      }
    },
    ContractCase("who has no list of a parameter's values is told", rule: "semantics 7") { subject in
      let principals = subject.known.map(\.principal)
      for parameter in Set(principals.flatMap(\.parameters.keys)).union(["a parameter that nobody lists"]) {
        let unlimited = Set(principals.filter { $0.parameters[parameter] == nil }.map(\.name))
        switch subject.authentication.principals(withoutValuesOf: parameter) {
        case .everybody:
          try expectEqual(unlimited.count, Set(principals.map(\.name)).count, "the principals without a list")
        case .named(let names):
          let known = Set(names).intersection(principals.map(\.name))
          try expectEqual(known, unlimited, "the principals without a list")
          try expectEqual(Set(names).count, names.count, "the number of different names")
        }
      }
    },
    ContractCase("many at once are told apart", rule: "Exchange.swift, Authentication: Sendable") { subject in
      try await withThrowingTaskGroup(of: Void.self) { group in
        for turn in 0..<64 {
          let (credentials, principal) = subject.known[turn % subject.known.count]
          group.addTask {
            let headers = try subject.authentication.headers(credentials: credentials)
            let found = try await subject.authentication.authenticate(request(headers))
            try expectEqual(found, principal, "the principal among many")
          }
        }
        try await group.waitForAll()
      }
    },
  ]

  private static func request(_ headers: [String: String], local: Bool = true) -> TransportRequest {
    TransportRequest(method: "POST", path: "/v1/sync", headers: headers, peerIsLocal: local)
  }
}
