import SalvorModel
import SalvorStorage
import SalvorWire

extension ColumnType {
  /// Values of any length, and no numbers.
  fileprivate var holdsBytes: Bool { [.text, .timestamp, .json, .blob].contains(self) }
}

extension PayloadReader.Item {
  var isNull: Bool { if case .null = self { true } else { false } }

  /// As a device has it that a server has sent one.
  var isNotANumber: Bool { if case .text(let bytes) = self { bytes.elementsEqual("NaN".utf8) } else { false } }

  /// As `ColumnType.stores`, without making a value.
  func isStored(by type: ColumnType) -> Bool {
    switch (type, self) {
    case (_, .null), (.text, .text), (.timestamp, .text), (.json, .text), (.integer, .integer), (.real, .real),
      (.blob, .blob):
      true
    case (.boolean, .integer(let x)): x == 0 || x == 1
    default: false
    }
  }
}

extension StoreStatement {
  /// Binds a value of the payload where it stands; it must stay there until the statement has run.
  func bind(_ parameter: Int, _ item: PayloadReader.Item) throws {
    switch item {
    case .null: try bindNull(parameter)
    case .integer(let x): try bind(parameter, x)
    case .real(let x): try bind(parameter, x)
    case .text(let x): try bindText(parameter, UnsafeRawBufferPointer(x), copying: false)
    case .blob(let x): try bindBlob(parameter, UnsafeRawBufferPointer(x), copying: false)
    }
  }
}

extension ShapePlan {
  /// What is wrong with this row's content alone.
  func refusal(_ row: RowItems, _ catalog: Catalog, _ limits: Limits) -> RefusalText? {
    if let refusal { return refusal }
    guard let place else { return nil }
    // A table is large: nothing of it is touched where nothing is wrong.
    func name() -> String { catalog.tables[place].name }
    func tooLarge() -> RefusalText {
      RefusalText(
        .tooLarge, "The row of \(name()) is larger than \(limits.rowBytesMax) bytes. Make its values smaller.")
    }
    if row.byteCount > limits.rowBytesMax { return tooLarge() }
    if row.blobBytes > limits.blobBytesMax {
      return RefusalText(
        .tooLarge,
        "A blob of \(name()) has \(row.blobBytes) bytes, more than \(limits.blobBytesMax). Make it smaller.")
    }
    let types = targetTypes
    for (index, item) in row.items.enumerated() where index < types.count {
      guard let type = types[index], !item.isStored(by: type), let target = targets[index],
        !(type == .real && catalog.dialect.storesNotANumber && item.isNotANumber)
      else { continue }
      // The device may not send such a row: it says how large it is (decision 120).
      if case .integer(let bytes) = item, bytes > min(limits.rowBytesMax, limits.bodyBytesMax), target.type.holdsBytes {
        // A whole number that somebody has put there looks the same.
        return RefusalText(
          .tooLarge,
          "The row of \(name()) is larger than \(limits.rowBytesMax) bytes, or has a whole number in \(target.name), which stores \(target.type.rawValue) only. Make its values smaller, or correct that one."
        )
      }
      return RefusalText(
        .notStorable, "\(name()).\(target.name) stores \(target.type.rawValue) only. Correct the value.")
    }
    for item in neverNullItems where item < row.items.count && row.items[item].isNull {
      return RefusalText(
        .constraint, "\(name()).\(targets[item]?.name ?? "") is never NULL by the schema. Give it a value.")
    }
    return excluded(row, catalog)
  }

  /// The key of the row, before an update gives it another.
  func key(of row: RowItems) -> Key { keyItems.map { row.items[$0].value } }

  /// The key of the row, and the one that an update gives it.
  func keys(of row: RowItems) -> [Key] {
    let key = key(of: row)
    if keyUpdates.isEmpty { return [key] }
    var after = key
    for update in keyUpdates { after[update.place] = row.items[update.item].value }
    return [key, after]
  }

  func hash(_ items: [PayloadReader.Item]) -> UInt64 {
    var hash = seed
    if place == nil || keyItems.isEmpty {
      for item in items { hash.add(item) }
    } else {
      for index in keyItems { hash.add(items[index]) }
    }
    return hash.value
  }

  /// What the row array changes: everything but the old values, and what an insert does not set.
  func content(_ items: [PayloadReader.Item]) -> UInt64 {
    if insertItems.isEmpty { return wholeContent(items) }
    var hash = insertSeed
    for (name, item, column) in insertItems {
      let value = items[item].value
      guard column.isSet(value) else { continue }
      hash.add(name)
      hash.add(value)
    }
    return hash.value
  }

  /// As an earlier version wrote it down of inserts: with every column.
  func wholeContent(_ items: [PayloadReader.Item]) -> UInt64 {
    var hash = contentSeed
    for index in contentItems { hash.add(items[index]) }
    if place == nil { for item in items { hash.add(item) } }
    return hash.value
  }

  /// The change, taken out of the payload.
  func change(
    _ items: [PayloadReader.Item], counter: Int64, made: Int64, hash: UInt64, refusal text: RefusalText?
  ) -> StagedChange {
    let values = items.map(\.value)
    // A refused one, too: what depends on it is known by what it would have done.
    var change = StagedChange(
      table: place, counter: counter, operation: operation, columns: hasUnknownColumns ? [] : columns,
      key: keyItems.map { values[$0] }, old: [], new: [], made: made, hash: hash, content: content(items),
      wholeContent: insertItems.isEmpty ? nil : wholeContent(items), refusal: text)
    guard place != nil, !hasUnknownColumns else { return change }
    switch operation {
    case .insert: change.new = values
    case .update:
      let first = keyItems.count
      change.old = columns.indices.map { values[first + 2 * $0] }
      change.new = columns.indices.map { values[first + 2 * $0 + 1] }
    case .delete: break
    }
    return change
  }
}
