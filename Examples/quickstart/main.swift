import SalvorClient

let client = try SalvorClient(configurationFile: CommandLine.arguments.dropFirst().first ?? "salvor.json5")
let report = try await client.synchronize()
print("\(report.upserts) rows came, \(report.uploaded) changes went")
await client.close()
