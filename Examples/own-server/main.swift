import SalvorServer

let server = try await RunningServer.open(
  configurationFile: CommandLine.arguments.dropFirst().first ?? "salvor.json5")
print(try await server.start())
try await Task.sleep(for: .seconds(365 * 86_400))
