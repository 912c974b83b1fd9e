# What makes C++ of CUDA C++: kernel<<<grid, block, shared, stream>>>(...) becomes a call. What it does not know does not compile.
1i # 1 "examples/train/compute_cuda.cu"
s/\([A-Za-z_][A-Za-z_0-9]*\)<<<\(.*\)>>>(/EMULATE(\1, \2)(/
