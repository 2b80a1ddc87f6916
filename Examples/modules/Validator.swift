import SalvorModules

/// A validator: no text is longer than so many characters. It judges by what is in the request alone.
struct ShortTexts: RequestValidator {
  let charactersMax: Int

  func validate(_ batch: ValidationBatch) async throws -> [ValidationRefusal] {
    batch.requests.compactMap { request in
      let isLong = request.changes.contains { change in
        change.columns.contains { ($0.new.string?.count ?? 0) > charactersMax }
      }
      guard isLong else { return nil }
      return ValidationRefusal(
        id: request.id, message: "A text has more than \(charactersMax) characters. Make it shorter.", status: 422)
    }
  }

  static let factory = ModuleFactory(
    ModuleDescriptor(
      kind: .validator, name: "short-texts", summary: "Refuses long texts.",
      options: [ModuleOption("charactersMax", type: "integer", default: "500", "of one text, 1 to 100000")]),
    product: (any RequestValidator).self
  ) { reader, _ in
    let most = Int(reader.integer("charactersMax", in: 1...100_000, default: 500))
    return { ShortTexts(charactersMax: most) }
  }
}
