// (filled by the first file of this plug-in)
