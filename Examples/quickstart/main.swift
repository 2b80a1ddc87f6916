import SalvorClient

let client = try SalvorClient(configurationFile: CommandLine.arguments.dropFirst().first ?? "salvor.json5")
let result = try await client.synchronize()
print("\(result): \(result.upserts) rows came, \(result.uploaded) changes went")
await client.close()
